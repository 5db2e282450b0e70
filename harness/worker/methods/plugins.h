// Plug-ins: shared libraries with methods that are not part of attnbench (attn/plugin.h). The worker's option --plugin names
// them.
#pragma once

#include <string>
#include <vector>

namespace attnbench {

class Plugins {
 public:
  explicit Plugins(const std::vector<std::string>& paths);

  // Loads plug-ins in their order until one of them has the method that a case names, so that cases of other methods see nothing
  // of them. Throws c10::ValueError that names the plug-in if it is not valid, was built with other versions, cannot be loaded,
  // or registers no method, a method whose name is taken, or a name that cannot be written.
  void load_for(const std::string& method);
  // Loads all of them. Throws as load_for().
  void load_all();

  struct Plugin {
    std::string path;
    std::string digest = {};                // SHA-1 of the file, in hexadecimal digits
    std::vector<std::string> methods = {};  // the names of those that it has registered
    bool is_loaded = false;
    std::string error = {};  // why it could not be loaded, once that was tried
  };
  // The plug-in that has registered the method that a case names; null if none has.
  const Plugin* plugin_of(const std::string& method) const;

 private:
  void load(Plugin& plugin);

  std::vector<Plugin> plugins_;
};

}  // namespace attnbench
