// Loads plug-ins when a case first needs them, and checks the names that they register.
#include "harness/worker/methods/plugins.h"

#include <c10/util/Exception.h>
#include <c10/util/hash.h>
#include <dlfcn.h>

#include <algorithm>
#include <set>
#include <string_view>
#include <utility>

#include "attn/method_name.h"
#include "attn/registry.h"
#include "harness/worker/methods/plugin_file.h"

namespace attnbench {
namespace {

bool is_registered(const std::string& name) {
  const auto all = attn::methods();
  return std::any_of(all.begin(), all.end(), [&](const attn::MethodEntry* entry) { return entry->name == name; });
}

// Runs the initialisers of the library, and returns the methods that they register.
std::vector<attn::MethodEntry> methods_of_library(const std::string& path) {
  const char* problem = nullptr;
  auto methods = attn::methods_registered_by([&] {
    // The library stays loaded, because its methods do.
    if (!dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) problem = dlerror();
  });
  TORCH_CHECK_VALUE(!problem, path, ": cannot be loaded: ", problem);
  return methods;
}

// Throws c10::ValueError for a name that sweep files and the command line could not write.
void check_name(const std::string& path, const std::string& name) {
  const bool is_plain = std::all_of(name.begin(), name.end(), [](unsigned char c) {
    return c > ' ' && c < 127 && std::string_view(":,=/'\"").find(char(c)) == std::string_view::npos;
  });
  TORCH_CHECK_VALUE(is_plain && !name.empty() && !attn::is_python_name(name), path, ": registers the method '", name,
                    "', expected a name without spaces and the characters : , = / ' \", and not that of a Python file, such as "
                    "'sliding-window'");
}

}  // namespace

Plugins::Plugins(const std::vector<std::string>& paths) {
  for (const auto& path : paths) plugins_.push_back({path});
}

const Plugins::Plugin* Plugins::plugin_of(const std::string& method) const {
  const std::string name(attn::method_name(method));
  for (const auto& plugin : plugins_)
    if (std::find(plugin.methods.begin(), plugin.methods.end(), name) != plugin.methods.end()) return &plugin;
  return nullptr;
}

void Plugins::load_for(const std::string& method) {
  const std::string name(attn::method_name(method));
  for (auto& plugin : plugins_) {
    if (is_registered(name) || attn::is_python_name(name)) return;
    load(plugin);
  }
}

void Plugins::load_all() {
  for (auto& plugin : plugins_) load(plugin);
}

void Plugins::load(Plugin& plugin) {
  const auto& path = plugin.path;
  // A library that is loaded again runs no initialiser again, so it would seem to have no methods.
  TORCH_CHECK_VALUE(plugin.error.empty(), plugin.error);
  if (plugin.is_loaded) return;
  try {
    const auto contents = read_plugin_file(path);
    check_versions(path, versions_in(path, contents));
    plugin.digest = c10::sha1(contents).str();
    auto methods = methods_of_library(path);
    TORCH_CHECK_VALUE(!methods.empty(), path, ": the plug-in registers no method, expected an attn::RegisterMethod in it");
    // Nothing is added before everything is checked.
    std::set<std::string> names;
    for (const auto& entry : methods) {
      check_name(path, entry.name);
      const auto* const other = plugin_of(entry.name);
      TORCH_CHECK_VALUE(!other, path, ": registers the method '", entry.name, "', which ", other->path, " registers already");
      TORCH_CHECK_VALUE(names.insert(entry.name).second && !is_registered(entry.name), path, ": registers the method '",
                        entry.name, "', which exists already");
    }
    for (auto& entry : methods) attn::add_method(std::move(entry));
    plugin.methods.assign(names.begin(), names.end());
    plugin.is_loaded = true;
  } catch (const c10::Error& error) {
    plugin.error = error.what_without_backtrace();
    throw;
  } catch (const std::exception& error) {
    plugin.error = path + ": an initialiser of the plug-in threw: " + error.what();
    TORCH_CHECK_VALUE(false, plugin.error);
  }
}

}  // namespace attnbench
