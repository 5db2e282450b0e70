// InputFile: the tensors that a user's file holds, such as q, k and v of a layer of a model.
//
// A file *.safetensors holds the tensors by their names in attn::kInputs, such as "q" [B,H,length,dim], in float32, float16 or
// bfloat16; it may hold others (https://github.com/huggingface/safetensors, "Format"). A file *.npy holds one array
// [3,B,H,length,dim] of float32 or float16 in C order, which are q, k and v (NumPy's documentation, "numpy.lib.format").
#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <string>
#include <vector>

#include "attn/input_spec.h"
#include "attn/inputs.h"
#include "attn/problem.h"

namespace attnbench {

// Where a file holds a tensor: its elements follow each other in row-major order.
struct StoredTensor {
  at::ScalarType dtype = at::kFloat;
  std::vector<int64_t> sizes;  // each at least 1
  uint64_t offset = 0;         // of the first element, in bytes from the beginning of the file
};

// A tensor that a file holds, and its declaration.
struct StoredInput {
  attn::InputSpec spec;
  StoredTensor tensor;
};

// Both read the header of a file and return those of the tensors in `specs` that it holds. They throw c10::ValueError with the
// path and, if the contents are wrong or a required tensor is missing, the byte, what was found and what was expected. No element
// is read. All elements of the returned tensors are within the file.
std::vector<StoredInput> read_safetensors_header(const std::string& path, const std::vector<attn::InputSpec>& specs);
std::vector<StoredInput> read_npy_header(const std::string& path, const std::vector<attn::InputSpec>& specs);

class InputFile {
 public:
  // Reads the header of a file *.safetensors or *.npy. Throws as the functions above do, and for any other name.
  explicit InputFile(std::string path, const std::vector<attn::InputSpec>& specs = attn::query_key_value());

  // The digest of the file, as the column inputs_digest describes it. Reads the whole file.
  std::string digest() const;

  // Throws c10::ValueError that names the first axis of the problem that the tensors do not fit: batch, heads and dimensions must
  // be equal, and the lengths at least those of the problem.
  void check(const attn::Problem& problem) const;

  // Reads the first batch entries, heads and positions of each tensor, as many as the problem has, in the dtype of the file, on
  // the CPU. Throws c10::ValueError if the file has fewer of them, or if it cannot be read any more.
  attn::Inputs read(const attn::Problem& problem) const;

 private:
  std::string path_;
  std::vector<StoredInput> stored_;
};

}  // namespace attnbench
