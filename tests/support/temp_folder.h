// A temporary folder for a test. The destructor removes it with its contents.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>

namespace attnbench {

class TempFolder {
 public:
  TempFolder() : path_(testing::TempDir() + "attnbench-XXXXXX") {
    if (!mkdtemp(path_.data())) throw std::runtime_error("cannot make " + path_);
  }
  ~TempFolder() { std::filesystem::remove_all(path_); }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;

  const std::string& path() const { return path_; }
  std::string path(const std::string& name) const { return path_ + "/" + name; }

  // Writes a file and returns its path.
  std::string write(const std::string& name, const std::string& text) const {
    std::ofstream(path(name), std::ios::binary) << text;
    return path(name);
  }
  // Writes an executable shell script and returns its path.
  std::string write_script(const std::string& name, const std::string& commands) const {
    write(name, "#!/bin/sh\n" + commands + "\n");
    std::filesystem::permissions(path(name), std::filesystem::perms::owner_all);
    return path(name);
  }
  // Returns the contents of a file, or an empty text if there is no such file.
  std::string read(const std::string& name) const {
    std::ifstream file(path(name), std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  bool has(const std::string& name) const { return std::filesystem::exists(path(name)); }

 private:
  std::string path_;
};

}  // namespace attnbench
