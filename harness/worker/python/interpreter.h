// The Python interpreter inside the worker.
#pragma once

#include <pybind11/pybind11.h>

#include <string>

namespace attnbench {

// The Python module attnbench._bridge. The first call starts the interpreter. The object holds the GIL while it
// exists. The constructor throws c10::ValueError if the interpreter, its torch or the package attnbench cannot be used.
class Bridge {
 public:
  Bridge();

  pybind11::handle module() const { return module_; }
  // Runs `work`, and throws c10::ValueError with the traceback of a Python exception as its message.
  template <class Work>
  auto checked(const Work& work) const {
    try {
      return work();
    } catch (pybind11::error_already_set& error) {
      fail(error);
    }
  }

 private:
  [[noreturn]] void fail(pybind11::error_already_set& error) const;

  static pybind11::handle start();
  pybind11::handle module_;  // started before the GIL is taken
  pybind11::gil_scoped_acquire gil_;
};

}  // namespace attnbench
