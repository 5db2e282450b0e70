// The description in the header of NumPy's .npy files (NumPy's documentation, "numpy.lib.format").
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace attnbench {

struct NpyDescription {
  std::string dtype;          // such as "<f4"
  bool column_major = false;  // in Fortran order
  std::vector<int64_t> sizes;
};

// What a description such as "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 1, 8, 1024, 64), }" says. Nothing if it is of
// another form than numpy.save() writes.
std::optional<NpyDescription> parse_npy_description(std::string_view written);

}  // namespace attnbench
