// Replaces libFuzzer for compilers without it: runs a fuzz target on every file of its corpus, and on a fixed number of randomly
// changed files.
//
//   fuzz_smoke_TARGET CORPUS_FOLDER CHANGES
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <set>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace {

using Bytes = std::vector<uint8_t>;

// Returns the bytes after one to four random changes.
Bytes changed(Bytes bytes, const std::vector<Bytes>& corpus, std::mt19937_64& random) {
  const auto below = [&](size_t n) { return std::uniform_int_distribution<size_t>(0, n - 1)(random); };
  const auto place = [&] { return bytes.begin() + std::ptrdiff_t(below(bytes.size() + 1)); };
  for (auto times = 1 + below(4); times > 0; --times) {
    switch (below(6)) {
      case 0: bytes.insert(place(), uint8_t(below(256))); break;
      case 1:
        if (!bytes.empty()) bytes[below(bytes.size())] ^= uint8_t(1U << below(8));
        break;
      case 2:
        if (!bytes.empty()) bytes.erase(bytes.begin() + std::ptrdiff_t(below(bytes.size())), bytes.end());
        break;
      case 3: {  // insert a piece of another input
        const auto& other = corpus[below(corpus.size())];
        if (other.empty()) break;
        const auto from = below(other.size()), length = 1 + below(other.size() - from);
        const auto* const piece = other.data() + from;
        bytes.insert(place(), piece, piece + length);
        break;
      }
      case 4: {  // nest deeply
        const char* const openings[] = {"[", "{\"a\":", "{a=", "a.", "\"a\"."};
        const std::string opening = openings[below(std::size(openings))];
        // Mostly as deep as the parsers accept, rarely so deep that a function which calls itself for each level would overflow.
        const auto depth = below(100) == 0 ? 200'000 : 1 + below(100);
        std::string text;
        for (size_t i = 0; i < depth; ++i) text += opening;
        bytes.insert(place(), text.begin(), text.end());
        break;
      }
      default: {
        const char* const digits[] = {"9223372036854775808", "-1", "0", "1e999", "\"", "}", "]", "\n", "="};
        const std::string text = digits[below(std::size(digits))];
        bytes.insert(place(), text.begin(), text.end());
      }
    }
  }
  return bytes;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return std::fprintf(stderr, "usage: %s CORPUS_FOLDER CHANGES\n", argv[0]), 2;
  // File systems list files in different orders. They are sorted, so that every machine tries the same changes.
  const std::filesystem::directory_iterator entries(argv[1]);
  std::set<std::filesystem::path> paths(begin(entries), end(entries));
  std::vector<Bytes> corpus;
  for (const auto& path : paths) {
    std::ifstream file(path, std::ios::binary);
    corpus.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  }
  if (corpus.empty()) return std::fprintf(stderr, "%s: the corpus folder contains no files\n", argv[1]), 2;
  for (const auto& bytes : corpus) LLVMFuzzerTestOneInput(bytes.data(), bytes.size());
  std::mt19937_64 random(1);
  for (long i = std::atol(argv[2]); i > 0; --i) {
    const auto bytes = changed(corpus[random() % corpus.size()], corpus, random);
    LLVMFuzzerTestOneInput(bytes.data(), bytes.size());
  }
}
