// Reads the version of a torch and the ABI of its libraries from its files, without loading it.
#include "harness/process/torch_location.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <regex>
#include <system_error>
#include <vector>

#include "harness/files/text_file.h"
#include "harness/schema/build_info.h"
#include "harness/text/errors.h"

// CMake gives these, from the torch of the build.
#if !defined(ATTNBENCH_TORCH_VERSION) || !defined(ATTNBENCH_TORCH_CUDA)
#error "harness/CMakeLists.txt defines the version of torch and of its CUDA"
#endif

namespace attnbench {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxVersionBytes = size_t{1} << 16, kMaxLibraryBytes = size_t{64} << 20;
constexpr const char *kNewAbi = "C++11", *kOldAbi = "before C++11";

std::string without_suffix(const std::string& version) { return version.substr(0, version.find('+')); }

// The value of a line such as "cuda: Optional[str] = '13.0'" in torch/version.py; empty for None and if there is no such line.
std::string value_in(const std::string& text, const std::string& name) {
  std::smatch found;
  const std::regex line("(?:^|\n)" + name + "(?:: [^\n=]*)? = '([^'\n]*)'");
  return std::regex_search(text, found, line) ? found[1].str() : "";
}

std::string in_words(const TorchFacts& torch) {
  return fmt::format("torch {}, {}, {}", torch.version, torch.cuda.empty() ? "without CUDA" : "with CUDA " + torch.cuda,
                     torch.abi.empty() ? "an unknown ABI" : fmt::format("the ABI {}", torch.abi));
}

std::string major_of(const std::string& version) { return version.substr(0, version.find('.')); }

bool build_has_cuda() { return std::string(kBuildInfo.build).starts_with("CUDA"); }

}  // namespace

TorchFacts torch_of_build() { return {without_suffix(ATTNBENCH_TORCH_VERSION), ATTNBENCH_TORCH_CUDA, kNewAbi}; }

TorchFacts torch_in(const std::string& folder) {
  const auto path = fs::path(folder);
  const auto file = (path / "version.py").string();
  std::error_code error;
  if (!fs::is_regular_file(file, error))
    throw UsageError(
        fmt::format("{}: no such file; expected a folder of torch, such as …/site-packages/torch, in --torch or "
                    "ATTNBENCH_TORCH",
                    file));
  const auto text = read_text_file(file, kMaxVersionBytes);
  TorchFacts facts{without_suffix(value_in(text, "__version__")), value_in(text, "cuda"), ""};
  if (facts.version.empty()) throw UsageError(fmt::format("{}: it has no line __version__ = '…', which says the version", file));
  // The name of a function that every LibTorch has, and whose argument is a std::string.
  const auto library = read_text_file((path / "lib" / "libc10.so").string(), kMaxLibraryBytes);
  const std::string function = "_ZN3c106detail14torchCheckFailEPKcS2_jRK";
  if (library.find(function + "NSt7__cxx1112basic_string") != std::string::npos) facts.abi = kNewAbi;
  else if (library.find(function + "Ss") != std::string::npos) facts.abi = kOldAbi;
  return facts;
}

std::string torch_mismatch(const TorchFacts& found, const TorchFacts& built, bool with_cuda) {
  const bool same_abi = found.abi.empty() || found.abi == built.abi;
  const bool same_cuda = !with_cuda || (!found.cuda.empty() && major_of(found.cuda) == major_of(built.cuda));
  if (found.version == built.version && same_abi && same_cuda) return "";
  return fmt::format("found {}; expected {}, which attnbench was built with", in_words(found), in_words(built));
}

std::string library_path_of(const std::string& folder, const std::string& others) {
  const auto absolute = fs::weakly_canonical(folder);
  std::vector<std::string> folders;
  std::error_code error;
  for (const auto& package : fs::directory_iterator(absolute.parent_path() / "nvidia", error))
    if (fs::is_directory(package.path() / "lib", error)) folders.push_back((package.path() / "lib").string());
  std::sort(folders.begin(), folders.end());
  auto path = (absolute / "lib").string();
  for (const auto& more : folders) path += ":" + more;
  return others.empty() ? path : path + ":" + others;
}

void use_torch_in(const std::string& folder) {
  if (const auto wrong = torch_mismatch(torch_in(folder), torch_of_build(), build_has_cuda()); !wrong.empty())
    throw UsageError(fmt::format("{}: {}", folder, wrong));
  const char* const others = std::getenv("LD_LIBRARY_PATH");
  setenv("LD_LIBRARY_PATH", library_path_of(folder, others ? others : "").c_str(), /*overwrite=*/1);
}

}  // namespace attnbench
