#include "harness/worker/methods.h"

#include <c10/util/Exception.h>
#include <dlfcn.h>

#include <cstdlib>
#include <filesystem>
#include <map>

#include "attn/method_name.h"
#include "attn/registry.h"
#include "harness/worker/python/module.h"

namespace attnbench {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> methods_folders;

std::map<std::string, std::string>& digests() {  // by the name of the method
  static std::map<std::string, std::string> all;
  return all;
}

struct PythonModule {
  decltype(&attnbench_python_entry) entry = nullptr;
  decltype(&attnbench_python_version) version = nullptr;
};

// Loads the module when the first Python method is named, so that other cases spend neither time nor memory on Python.
const PythonModule& python_module() {
  static const auto loaded = [] {
    const auto path = fs::read_symlink("/proc/self/exe").parent_path() / "libattnbench-python.so";
    TORCH_CHECK_VALUE(fs::exists(path),
                      "this build cannot run Python methods, because the headers of Python (Debian: python3-dev) "
                      "were missing when it was built; ",
                      path.string(), " does not exist");
    auto* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    TORCH_CHECK_VALUE(library, "the module for Python methods cannot be loaded: ", dlerror());
    PythonModule module;
    module.entry = reinterpret_cast<decltype(module.entry)>(dlsym(library, "attnbench_python_entry"));
    module.version = reinterpret_cast<decltype(module.version)>(dlsym(library, "attnbench_python_version"));
    TORCH_CHECK_VALUE(module.entry && module.version, path.string(), " is not the module of attnbench for Python methods");
    return module;
  }();
  return loaded;
}

// The first file of this name in the folders; the name itself if none has it.
std::string find_python_file(const fs::path& name) {
  for (const fs::path folder : methods_folders)
    if (const auto path = folder / name; fs::exists(path))
      return path.lexically_normal().string();  // an absolute name replaces the folder
  return name.string();
}

// Registers the Python method of this name, unless that has been done.
void load_python_method(const std::string& name) {
  if (digests().contains(name)) return;
  const auto split = attn::split_python_name(name);
  TORCH_CHECK_VALUE(!split.function.empty(), "method '", name, "' names no function, expected ", split.file, ":FUNCTION");
  attn::MethodEntry entry;
  std::string digest;
  python_module().entry(find_python_file(split.file), std::string(split.function), name, entry, digest);
  const attn::RegisterMethod registered{std::move(entry)};
  digests().emplace(name, std::move(digest));
}

}  // namespace

void set_methods_folders(std::vector<std::string> folders) { methods_folders = std::move(folders); }

std::shared_ptr<attn::AttentionMethod> make_method(const std::string& text) {
  if (const std::string name(attn::method_name(text)); attn::is_python_name(name)) load_python_method(name);
  return attn::make_method(text);
}

std::string method_digest(const std::string& text) {
  const auto found = digests().find(std::string(attn::method_name(text)));
  return found == digests().end() ? "" : found->second;
}

bool python_in_use() { return !digests().empty(); }

std::string python_version() { return python_module().version(); }

}  // namespace attnbench
