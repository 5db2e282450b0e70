// Makes methods from the registry, and loads the module for Python methods when the first one is named.
#include "harness/worker/methods/methods.h"

#include <ATen/Context.h>
#include <c10/util/Exception.h>
#include <dlfcn.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <type_traits>

#include "attn/method_name.h"
#include "attn/registry.h"
#include "harness/schema/file_search.h"
#include "harness/worker/python/module.h"

namespace attnbench {
namespace {

namespace fs = std::filesystem;

std::map<std::string, std::string>& digests() {  // by the name of the method
  static std::map<std::string, std::string> all;
  return all;
}

struct PythonModule {
  decltype(&attnbench_python_entry) entry = nullptr;
  decltype(&attnbench_python_version) version = nullptr;
  decltype(&attnbench_python_start) start = nullptr;
  decltype(&attnbench_python_fork) fork = nullptr;
};

// Why the module for Python methods is missing or how the user gets it, as the end of a message.
std::string why_no_module(const fs::path& folder) {
  // The build writes this file when it is configured. It says why there can be no module, and is empty if there can be one.
  std::ifstream build(folder / "python-methods");
  if (!build) return "; install attnbench again from a build that has it";
  std::string reason;
  std::getline(build, reason);
  return ", because " + (reason.empty() ? "it has not been built; `make python` builds it" : reason);
}

// Loads the CUDA library of LibTorch, which Python's torch needs even on a CPU, and a stand-in for each library that it needs and
// that is missing (cmake/cuda_stand_ins.py). A LibTorch without CUDA has no such library.
void load_cuda_libraries(const fs::path& stand_ins) {
  const auto library = torch_library().parent_path() / "libtorch_cuda.so";
  if (!fs::exists(library)) return;
  std::set<fs::path> loaded;
  while (!dlopen(library.c_str(), RTLD_LAZY | RTLD_LOCAL)) {
    const std::string error = dlerror();
    const auto missing = fs::path(error.substr(0, error.find(':'))).filename();  // "libcublas.so.13: cannot open …"
    const auto stand_in = stand_ins / missing;
    const bool is_missing = error.find("cannot open shared object file") != std::string::npos;
    TORCH_CHECK_VALUE(is_missing && fs::exists(stand_in) && loaded.insert(stand_in).second,
                      "torch needs a library that cannot be loaded, although it is not called on a CPU: ", error,
                      "; `make setup` installs torch with all of its libraries");
    TORCH_CHECK_VALUE(dlopen(stand_in.c_str(), RTLD_LAZY | RTLD_LOCAL),
                      "the stand-in for a CUDA library cannot be loaded: ", dlerror());
  }
}

// Loads the module when the first Python method is named, so that other cases spend neither time nor memory on Python.
const PythonModule& python_module() {
  static const auto loaded = [] {
    const auto folder = fs::read_symlink("/proc/self/exe").parent_path();
    const char* const chosen = std::getenv("ATTNBENCH_PYTHON_MODULE");
    const auto path = chosen ? fs::path(chosen) : folder / "libattnbench-python.so";
    TORCH_CHECK_VALUE(fs::exists(path), "methods in Python need the file ", path.string(), ", which does not exist",
                      chosen ? " (from the environment variable ATTNBENCH_PYTHON_MODULE)" : why_no_module(folder));
    load_cuda_libraries(folder / "cuda-stand-ins");
    auto* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    TORCH_CHECK_VALUE(library, "the module for Python methods cannot be loaded: ", dlerror());
    PythonModule module;
    const auto find = [&](auto& function, const char* name) {
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name));
      TORCH_CHECK_VALUE(function, path.string(), " is not the module of attnbench for Python methods, because it lacks ", name);
    };
    find(module.entry, "attnbench_python_entry");
    find(module.version, "attnbench_python_version");
    find(module.start, "attnbench_python_start");
    find(module.fork, "attnbench_python_fork");
    return module;
  }();
  return loaded;
}

// Registers the Python method of this name, unless that has been done.
void load_python_method(const std::string& name, const WorkerContext& context) {
  if (digests().contains(name)) return;
  const auto split = attn::split_python_name(name);
  TORCH_CHECK_VALUE(!split.function.empty(), "method '", name, "' names no function, expected ", split.file, ":FUNCTION");
  attn::MethodEntry entry;
  std::string digest;
  python_module().entry(find_in_folders(context.folders, split.file), std::string(split.function), name, entry, digest);
  const attn::RegisterMethod registered{std::move(entry)};
  digests().emplace(name, std::move(digest));
}

}  // namespace

std::shared_ptr<attn::AttentionMethod> make_method(const std::string& text, const WorkerContext& context) {
  if (const std::string name(attn::method_name(text)); attn::is_python_name(name)) load_python_method(name, context);
  return attn::make_method(text);
}

std::string method_digest(const std::string& text) {
  const auto found = digests().find(std::string(attn::method_name(text)));
  return found == digests().end() ? "" : found->second;
}

std::string python_version() { return python_module().version(); }

fs::path torch_library() {
  Dl_info info;
  const bool found = dladdr(reinterpret_cast<const void*>(&at::globalContext), &info) != 0 && info.dli_fname;
  return found ? info.dli_fname : "";
}

void start_python() { python_module().start(); }

pid_t fork_with_python() { return python_module().fork(); }

}  // namespace attnbench
