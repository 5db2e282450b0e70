// Text as sequences of bytes, for models that predict every byte from those before it.
//
//   const auto set = load_text("/data/handbook");
//   const auto batch = text_batch(set.training, begins, 16384);  // begins: int64 [B]
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>

namespace experiments {

struct TextSet {
  at::Tensor training, validation;  // uint8 [bytes]
};

// Reads training.txt and validation.txt of a folder, whatever their encoding. Throws c10::ValueError that names the file if one
// is missing, cannot be read or is empty.
TextSet load_text(const std::string& folder);

struct TextBatch {
  at::Tensor inputs;   // int64 [B, length]
  at::Tensor targets;  // int64 [B, length]: targets[b, t] follows inputs[b, t]
};

// The sequences of `length` bytes of a text (uint8 [bytes]) that begin at `begins` (int64 [B]), with the byte behind each. Throws
// c10::ValueError if one does not lie in the text.
TextBatch text_batch(const at::Tensor& text, const at::Tensor& begins, int64_t length);

}  // namespace experiments
