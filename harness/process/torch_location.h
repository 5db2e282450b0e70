// Which LibTorch the workers load. Programs load the one that they were built with, from the place where it was then. On another
// machine the option --torch or the environment variable ATTNBENCH_TORCH names the folder of torch, such as
// …/site-packages/torch, and the programs check that it is the LibTorch that they need.
#pragma once

#include <string>

namespace attnbench {

struct TorchFacts {
  std::string version;  // such as "2.11.0", without what follows a "+"
  std::string cuda;     // the CUDA version that it was built with, such as "13.0"; empty if it was built without CUDA
  std::string abi;      // that of std::string: "C++11", "before C++11", or empty if libc10.so does not show it
};

// The torch that this program was built with.
TorchFacts torch_of_build();

// Reads what a folder of torch says of itself, without loading it. Throws UsageError that names the file that is missing or
// unreadable.
TorchFacts torch_in(const std::string& folder);

// Why a program that was built with `built` cannot run with `found`; empty if it can. CUDA counts only if the program uses it
// (`with_cuda`), and then by its major version, which names the libraries.
std::string torch_mismatch(const TorchFacts& found, const TorchFacts& built, bool with_cuda);

// The folders that the loader must look in for the libraries of this torch and of the CUDA packages beside it, with ":" between
// them, and then `others`, which may be empty.
std::string library_path_of(const std::string& folder, const std::string& others);

// Checks the folder, and lets every process that is started from now on load this LibTorch. Throws UsageError that names what was
// found and what was expected.
void use_torch_in(const std::string& folder);

}  // namespace attnbench
