// Reads the lists, features and phones of a folder, and groups utterances of similar lengths into batches.
#include "experiments/data/speech.h"

#include <ATen/ATen.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <filesystem>
#include <numeric>
#include <optional>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "experiments/data/file_error.h"
#include "experiments/data/gzip.h"
#include "experiments/data/npy.h"

namespace experiments {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kMaxPhonesBytes = uint64_t{1} << 20;
constexpr uint64_t kMaxIndexBytes = uint64_t{1} << 28;
constexpr const char *kPhonesFile = "phones.txt", *kTrainingFile = "training.tsv", *kValidationFile = "validation.tsv";

// A piece of a text file, with its position for messages.
struct Piece {
  std::string_view text;
  uint64_t offset = 0;  // in bytes
  size_t line = 0;      // from 1
};

[[noreturn]] void fail_in(const std::string& path, const Piece& piece, const std::string& found, const std::string& expected) {
  fail_at(path + ": line " + std::to_string(piece.line), piece.offset, found, expected);
}

std::vector<Piece> split(const Piece& whole, char separator) {
  std::vector<Piece> pieces;
  for (size_t begin = 0; begin <= whole.text.size();) {
    const auto end = std::min(whole.text.find(separator, begin), whole.text.size());
    pieces.push_back({whole.text.substr(begin, end - begin), whole.offset + begin, whole.line});
    begin = end + 1;
  }
  return pieces;
}

// The lines of a text without their line ends. The last line may lack one.
std::vector<Piece> lines_of(const std::string& path, std::string_view text) {
  if (text.ends_with('\n')) text.remove_suffix(1);
  auto lines = split({text, 0, 0}, '\n');
  for (size_t i = 0; i < lines.size(); ++i) {
    auto& line = lines[i];
    line.line = i + 1;
    if (line.text.ends_with('\r')) line.text.remove_suffix(1);
    if (line.text.empty()) fail_in(path, line, "an empty line", "text");
  }
  return lines;
}

std::string read_text(const std::string& path, uint64_t limit) {
  ByteReader reader(path, limit);
  const auto bytes = reader.read_all("text");
  return {bytes.begin(), bytes.end()};
}

// Whether a text has a character that separates or ends names in the format, or one that cannot be printed. Bytes of UTF-8 beyond
// ASCII are allowed.
bool has_space_or_control(std::string_view text) {
  return std::any_of(text.begin(), text.end(), [](char c) { return uint8_t(c) <= ' ' || c == '\x7f'; });
}

// The number of frames that CTC needs for these labels.
int64_t needed_frames(const std::vector<int64_t>& labels) {
  auto frames = int64_t(labels.size());
  for (size_t i = 1; i < labels.size(); ++i) frames += labels[i] == labels[i - 1];
  return frames;
}

std::vector<Utterance> load_part(const fs::path& folder, const char* name, const std::vector<std::string>& phones) {
  const auto path = (folder / name).string();
  auto utterances = parse_utterances(path, read_text(path, kMaxIndexBytes), phones);
  for (auto& utterance : utterances) {
    utterance.file = (folder / utterance.file).string();  // an absolute path stays as it is
    const auto sizes = read_npy_sizes(utterance.file);
    TORCH_CHECK_VALUE(sizes.columns == kSpeechBands, utterance.file, ": ", sizes.columns, " columns, expected ", kSpeechBands,
                      ", the features of a frame");
    utterance.frames = sizes.rows;
    TORCH_CHECK_VALUE(sizes.rows >= needed_frames(utterance.labels), utterance.file, ": ", sizes.rows,
                      " frames, expected at least ", needed_frames(utterance.labels), " for the ", utterance.labels.size(),
                      " phones of utterance ", quoted_text(utterance.id), " in ", path);
  }
  return utterances;
}

void check_generator(const at::Generator& generator) {
  TORCH_CHECK_VALUE(generator.defined() && generator.device().is_cpu(), "speech: expected a generator of the CPU");
}

void write_text(const std::string& path, const std::string& text) {
  write_bytes(path, {reinterpret_cast<const uint8_t*>(text.data()), text.size()});
}

void write_part(const fs::path& folder, const char* name, const std::string& prefix, const SpeechSet& set,
                const std::vector<Utterance>& utterances) {
  std::string text;
  for (size_t i = 0; i < utterances.size(); ++i) {
    const auto& utterance = utterances[i];
    const auto file = "features/" + prefix + "-" + std::to_string(i + 1) + ".npy";
    write_npy((folder / file).string(), utterance.features.defined() ? utterance.features : read_npy(utterance.file));
    text += utterance.id + "\t" + file + "\t";
    for (size_t k = 0; k < utterance.labels.size(); ++k) {
      const auto label = utterance.labels[k];
      TORCH_CHECK_VALUE(label >= 1 && label <= int64_t(set.phones.size()), "write_speech: utterance ", quoted_text(utterance.id),
                        " has label ", label, ", expected 1 to ", set.phones.size());
      text += (k > 0 ? " " : "") + set.phones[size_t(label - 1)];
    }
    text += '\n';
  }
  const auto path = (folder / name).string();
  parse_utterances(path, text, set.phones);  // refuses identifiers that are not allowed
  write_text(path, text);
}

}  // namespace

std::vector<std::string> parse_phones(const std::string& path, std::string_view text) {
  std::vector<std::string> phones;
  std::unordered_set<std::string_view> seen;
  for (const auto& line : lines_of(path, text)) {
    if (has_space_or_control(line.text)) fail_in(path, line, quoted_text(line.text), "the name of a phone without white space");
    if (!seen.insert(line.text).second) fail_in(path, line, quoted_text(line.text) + " for the second time", "another phone");
    phones.emplace_back(line.text);
  }
  return phones;
}

std::vector<Utterance> parse_utterances(const std::string& path, std::string_view text, const std::vector<std::string>& phones) {
  std::unordered_map<std::string_view, int64_t> labels;
  for (size_t i = 0; i < phones.size(); ++i) labels.emplace(phones[i], int64_t(i) + 1);
  std::vector<Utterance> utterances;
  std::unordered_set<std::string_view> seen;
  for (const auto& line : lines_of(path, text)) {
    const auto columns = split(line, '\t');
    if (columns.size() != 3) {
      fail_in(path, line, std::to_string(columns.size()) + " columns",
              "3 columns separated by tabs: identifier, file of features, transcript");
    }
    const auto &id = columns[0], &file = columns[1];
    if (id.text.empty() || has_space_or_control(id.text)) {
      fail_in(path, id, quoted_text(id.text), "the identifier of an utterance, without white space");
    }
    if (!seen.insert(id.text).second) fail_in(path, id, quoted_text(id.text) + " for the second time", "another identifier");
    if (file.text.empty() || file.text.find('\0') != std::string_view::npos) {
      fail_in(path, file, quoted_text(file.text), "the path of a file of features");
    }
    Utterance utterance;
    utterance.id = id.text;
    utterance.file = file.text;
    for (const auto& phone : split(columns[2], ' ')) {
      if (phone.text.empty()) continue;  // several spaces
      const auto label = labels.find(phone.text);
      if (label == labels.end())
        fail_in(path, phone, quoted_text(phone.text), std::string("a phone that ") + kPhonesFile + " lists");
      utterance.labels.push_back(label->second);
    }
    if (utterance.labels.empty()) fail_in(path, columns[2], "an empty transcript", "one or more phones");
    utterances.push_back(std::move(utterance));
  }
  return utterances;
}

SpeechSet load_speech(const std::string& folder) {
  TORCH_CHECK_VALUE(fs::is_directory(folder), folder, ": there is no such folder");
  const auto phones_path = (fs::path(folder) / kPhonesFile).string();
  SpeechSet set;
  set.phones = parse_phones(phones_path, read_text(phones_path, kMaxPhonesBytes));
  set.training = load_part(folder, kTrainingFile, set.phones);
  set.validation = load_part(folder, kValidationFile, set.phones);
  return set;
}

void write_speech(const std::string& folder, const SpeechSet& set) {
  const fs::path root(folder);
  std::error_code error;
  fs::create_directories(root / "features", error);
  TORCH_CHECK_VALUE(!error, folder, ": cannot make the folder: ", error.message());
  std::string text;
  for (const auto& phone : set.phones) text += phone + "\n";
  const auto path = (root / kPhonesFile).string();
  parse_phones(path, text);  // refuses names that are not allowed
  write_text(path, text);
  write_part(root, kTrainingFile, "training", set, set.training);
  write_part(root, kValidationFile, "validation", set, set.validation);
}

std::vector<std::vector<int64_t>> batches_by_length(const std::vector<Utterance>& utterances, int64_t batch,
                                                    at::Generator generator) {
  constexpr double kLengthChange = 0.05;
  TORCH_CHECK_VALUE(batch >= 1, "batches_by_length: batch = ", batch, ", expected at least 1");
  check_generator(generator);
  const auto count = int64_t(utterances.size());
  auto lengths = at::empty({count}, at::kDouble);
  for (int64_t i = 0; i < count; ++i) lengths[i] = double(utterances[size_t(i)].frames);
  lengths *= at::rand({count}, generator, at::kDouble) * kLengthChange + 1;
  const auto order = lengths.argsort();
  const auto batches = (count + batch - 1) / batch;
  const auto batch_order = at::randperm(batches, generator, at::kLong);
  std::vector<std::vector<int64_t>> result;
  for (int64_t i = 0; i < batches; ++i) {
    const auto begin = batch_order[i].item<int64_t>() * batch;
    const auto indices = order.slice(0, begin, std::min(begin + batch, count));
    const auto* const data = indices.const_data_ptr<int64_t>();
    result.emplace_back(data, data + indices.numel());
  }
  return result;
}

SpeechBatch speech_batch(const std::vector<Utterance>& utterances, const std::vector<int64_t>& indices) {
  TORCH_CHECK_VALUE(!indices.empty(), "speech_batch: expected at least one index");
  std::vector<int64_t> frame_lengths, labels, label_lengths;
  for (const auto index : indices) {
    TORCH_CHECK_VALUE(index >= 0 && index < int64_t(utterances.size()), "speech_batch: index ", index, ", expected 0 to ",
                      int64_t(utterances.size()) - 1);
    const auto& utterance = utterances[size_t(index)];
    frame_lengths.push_back(utterance.frames);
    labels.insert(labels.end(), utterance.labels.begin(), utterance.labels.end());
    label_lengths.push_back(int64_t(utterance.labels.size()));
  }
  const auto longest = *std::max_element(frame_lengths.begin(), frame_lengths.end());
  auto features = at::zeros({int64_t(indices.size()), longest, kSpeechBands}, at::kFloat);
  for (size_t i = 0; i < indices.size(); ++i) {
    const auto& utterance = utterances[size_t(indices[i])];
    const auto rows = utterance.features.defined() ? utterance.features : read_npy(utterance.file);
    TORCH_CHECK_VALUE(rows.sizes() == at::IntArrayRef({utterance.frames, kSpeechBands}), "the features of utterance ",
                      quoted_text(utterance.id), " have shape ", rows.sizes(), ", expected [", utterance.frames, ", ",
                      kSpeechBands, "]");
    features[int64_t(i)].narrow(0, 0, utterance.frames).copy_(rows);
  }
  return {features, at::tensor(frame_lengths, at::kLong), at::tensor(labels, at::kLong), at::tensor(label_lengths, at::kLong)};
}

}  // namespace experiments
