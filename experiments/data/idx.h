// IDX files of unsigned bytes, the format of MNIST's images and labels, plain or compressed with gzip.
//
// An IDX file consists of four bytes 00 00 TYPE DIMS, DIMS sizes of four bytes each with the most significant byte first, and the
// elements with the last index varying fastest (Y. LeCun, C. Cortes, C. Burges, "The MNIST database of handwritten digits"). TYPE
// is 08 for unsigned bytes, the only type that is accepted here.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>

namespace experiments {

// Reads an IDX file with this number of dimensions as a uint8 tensor. Throws c10::ValueError, with the path, the offset, what was
// found and what was expected, if the file is not an IDX file of unsigned bytes in `dims` dimensions, if a size is zero, or if
// the file has more or fewer bytes than its header says. The memory used is limited by the size of the contents, whatever the
// header says.
at::Tensor read_idx(const std::string& path, int64_t dims);

// The images of an IDX file as uint8 [count, rows, columns]. Throws as read_idx() does.
inline at::Tensor read_idx_images(const std::string& path) { return read_idx(path, 3); }
// The labels of an IDX file as uint8 [count]. Throws as read_idx() does.
inline at::Tensor read_idx_labels(const std::string& path) { return read_idx(path, 1); }

// Whether the file begins as an IDX file of unsigned bytes does, with any number of dimensions. Throws c10::ValueError if the
// file cannot be read.
bool begins_as_idx(const std::string& path);

}  // namespace experiments
