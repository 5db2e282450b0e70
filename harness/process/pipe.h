// A pipe whose ends are closed in every child process, except where the child is given one of them.
#pragma once

#include <array>
#include <cstddef>

namespace attnbench {

class Pipe {
 public:
  // Both ends get descriptors above 3, so that they cannot be overwritten while a child's descriptors 0 to 3 are set up.
  // Throws UsageError when the system has no descriptor left.
  Pipe();
  ~Pipe();
  Pipe(Pipe&& other) noexcept;
  Pipe& operator=(Pipe&&) = delete;

  // -1 once the end is closed.
  int read_end() const { return ends_[0]; }
  int write_end() const { return ends_[1]; }
  void close_read() { close_end(0); }
  void close_write() { close_end(1); }

 private:
  void close_end(size_t i);

  std::array<int, 2> ends_{-1, -1};
};

}  // namespace attnbench
