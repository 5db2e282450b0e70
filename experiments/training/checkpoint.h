// Checkpoint: named tensors and a JSON text in one file, from which a training continues. Python reads it with torch.load().
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <string>

#include "harness/schema/json.h"

namespace experiments {

struct Checkpoint {
  // What is not a tensor: the settings of the training, the number of updates, and so on.
  attnbench::Json values = attnbench::Json::object();
  std::map<std::string, at::Tensor> tensors;

  // Writes the file in one step, so that a kill or a full disk leaves either the old file or the new one. Throws
  // std::runtime_error that names the file and the system's reason.
  void save(const std::string& path) const;
  // Throws std::runtime_error that names the file if it cannot be read or is not a complete checkpoint.
  static Checkpoint load(const std::string& path);

  // The tensor of this name. Throws std::runtime_error that names it if there is none, or if its shape or dtype is not that of
  // `like`.
  const at::Tensor& tensor_like(const std::string& name, const at::Tensor& like) const;
};

}  // namespace experiments
