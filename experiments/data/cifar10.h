// Binary files of CIFAR-10, plain or compressed with gzip.
//
// A file consists of records of 3073 bytes: a label 0…9, and 1024 bytes each of the red, green and blue channel of a 32 × 32
// image, row by row (A. Krizhevsky, "The CIFAR-10 dataset", binary version).
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

namespace experiments {

struct Cifar10 {
  at::Tensor images;  // uint8 [count, 32, 32, 3]: row, column, channel (red, green, blue)
  at::Tensor labels;  // uint8 [count], 0…9
};

// Reads the records of these files, in this order. A file has 1 to 10,000 records; the files of the data set have 10,000. Throws
// c10::ValueError, with the path, the offset, what was found and what was expected, if a file does not consist of whole records,
// has too many of them or contains a label above 9.
Cifar10 read_cifar10(const std::vector<std::string>& paths);

}  // namespace experiments
