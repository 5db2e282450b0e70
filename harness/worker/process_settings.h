// The settings of PyTorch and of this process that change what a call computes or how fast, and that records state.
#pragma once

#include <ATen/Context.h>
#include <c10/core/AutogradState.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <string>
#include <utility>
#include <vector>

namespace attnbench {

// The setting float32_matmul_precision: "highest", "high" or "medium". Empty if the program has set it by this name and by newer
// names, and the values contradict each other.
std::string float32_matmul_precision();

class ProcessSettings {
 public:
  // The settings of this process, and of the calling thread where each thread has its own.
  static ProcessSettings now();

  // What differs in `later`, as text: "threads from 2 to 1, float32_matmul_precision from highest to high". Empty if nothing
  // differs.
  std::string changes(const ProcessSettings& later) const;
  // The same settings with the processors of `other`.
  ProcessSettings with_processors_of(const ProcessSettings& other) const;
  // Makes these the settings of the process and of the calling thread again.
  void restore() const;

 private:
  std::vector<std::pair<std::string, std::string>> in_words() const;

  int threads_ = 0;
  std::string matmul_precision_;                  // float32_matmul_precision(), the older name of the setting below
  std::vector<at::Float32Precision> precisions_;  // of float32 in matrix products
  bool onednn_ = true, deterministic_ = false, only_warns_ = false;
  bool gradients_ = true, inference_ = false, autocast_ = false, flushes_denormals_ = false;
  at::ScalarType default_dtype_ = at::kFloat;
  std::vector<int> processors_;
  // What the inference mode consists of.
  c10::AutogradState autograd_ = c10::AutogradState::get_tls_state();
  c10::impl::LocalDispatchKeySet dispatch_keys_ = c10::impl::tls_local_dispatch_key_set();
};

}  // namespace attnbench
