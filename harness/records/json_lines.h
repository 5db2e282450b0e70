// Files that hold one JSON value on each line, to which lines are appended. A program that is killed while it writes, or a full
// disk, damages no line that is already there.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "harness/files/file_descriptor.h"
#include "harness/schema/json.h"

namespace attnbench {

// Where the lines of a file go.
struct LineReader {
  std::function<void(size_t lines)> begin;  // called first, with the number of lines
  // Called once for each line, by several threads at once. Throws std::exception for a value that cannot be used.
  std::function<void(size_t index, Json line)> read;
};

// Makes each line an element of `lines`, in order. `convert` is called by several threads at once.
template <class Line, class Convert>
LineReader reader_into(std::vector<Line>& lines, Convert convert) {
  return {[&lines](size_t count) { lines.resize(count); },
          [&lines, convert](size_t index, Json line) { lines[index] = convert(std::move(line)); }};
}

// Reads the lines of the file. Ignores a last line without a line end, which a killed program leaves behind. Throws UsageError
// that names the file and, where a line is malformed or the reader throws, also the first such line; `what` says what a line
// should have been, such as "a record". Returns the number of bytes up to the end of the last line that has a line end.
size_t read_json_lines(const std::string& path, const std::string& what, const LineReader& reader);

// A file of JSON lines that this process writes to.
class JsonLines {
 public:
  // Makes the file where it is missing, reads its lines, and removes a last line that has no line end. Throws as
  // read_json_lines() does, and UsageError if the file cannot be written.
  JsonLines(const std::string& folder, const std::string& name, const std::string& what, const LineReader& reader);

  const std::string& path() const { return path_; }

  // Adds a line, which is on disk when this returns. Throws UsageError that names the file if it cannot be written, or if another
  // program has removed, moved or replaced it; the earlier lines then stay complete.
  void append(const Json& line);
  // Replaces all lines in one step. Throws UsageError that names the file if it cannot be written; it then has its old lines.
  void rewrite(const std::string& lines);
  void rewrite(const std::vector<Json>& lines);
  // Renames the file to `name`, which replaces an older file of that name, and starts an empty one.
  void set_aside(const std::string& name);
  // Throws UsageError if the file is no longer the one that this object writes to.
  void check_in_place() const;

  // The text of a line with its line end, as append() writes it.
  static std::string text_of(const Json& line);

 private:
  void open();

  std::string folder_, name_, path_;
  FileDescriptor file_;
};

}  // namespace attnbench
