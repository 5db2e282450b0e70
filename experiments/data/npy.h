// NumPy's .npy files: reads matrices of float32, and writes arrays of float32 and uint8.
//
// The format is described in NumPy's documentation under "numpy.lib.format". These files hold a header that gives the dtype, the
// order and the shape, and then the elements. What numpy.save() writes for an array of dtype float32 and two dimensions in C
// order is accepted; other dtypes, orders and numbers of dimensions are not.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>

namespace experiments {

struct MatrixSizes {
  int64_t rows = 0, columns = 0;
};

// The sizes in the header of the file, which are at least 1. Throws c10::ValueError, with the path, the offset, what was found
// and what was expected, if the header is not valid, or if a plain file has more or fewer bytes than the header says.
MatrixSizes read_npy_sizes(const std::string& path);

// The matrix as float32 [rows, columns]. Throws as read_npy_sizes() does, also for a file that is compressed with gzip, and if an
// element is not finite.
at::Tensor read_npy(const std::string& path);

// Writes an array of float32 or uint8 with any number of dimensions. Throws c10::ValueError if the tensor has another dtype, if
// it is empty, or if the file cannot be written.
void write_npy(const std::string& path, const at::Tensor& array);

}  // namespace experiments
