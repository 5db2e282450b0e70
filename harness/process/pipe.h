// A pipe whose ends are closed on exec: a child process has only the ends that it is given on purpose.
#pragma once

#include <array>
#include <cstddef>

namespace attnbench {

class Pipe {
 public:
  // Both ends get descriptors above 3, so that they cannot be overwritten while a child's descriptors 0 to 3 are set up.
  // Throws UsageError if no descriptor is left.
  Pipe();
  ~Pipe();
  Pipe(Pipe&& other) noexcept;
  Pipe& operator=(Pipe&&) = delete;

  // The descriptor of an end; -1 once the end is closed.
  int read_end() const { return ends_[0]; }
  int write_end() const { return ends_[1]; }
  void close_read() { close_end(0); }
  void close_write() { close_end(1); }

 private:
  void close_end(size_t i);

  std::array<int, 2> ends_{-1, -1};
};

}  // namespace attnbench
