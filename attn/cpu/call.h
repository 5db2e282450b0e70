// What the CPU kernels' callers share: which kernels run, tensors as rows, scratch.
#pragma once

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>

#include <map>
#include <optional>
#include <string>

#include "attn/cuda/cuda_device.h"
#include "attn/cpu/instruction_set.h"
#include "attn/linear/cpu/kernels.h"

namespace attn::kernels {

inline std::optional<Element> element_of(at::ScalarType dtype) {
  if (dtype == at::kFloat) return Element::float32;
  if (dtype == at::kDouble) return Element::float64;
  if (dtype == at::kBFloat16) return Element::bfloat16;
  return std::nullopt;
}

// The kernels of one operator; each gives null for types that it has none for.
template <class Kernels>
struct KernelFamily {
  const char* operator_name;
  const Kernels* (*portable)(Element);
  const Kernels* (*avx2)(Element);
  const Kernels* (*avx512)(Element);

  const Kernels* of(InstructionSet set, Element element) const {
    if (set == InstructionSet::avx512) return avx512(element);
    return set == InstructionSet::avx2 ? avx2(element) : portable(element);
  }

  // What "auto" chooses, or the one named: see find_linear_kernels() and find_lsh_kernels(). `task`: what kernels do at all, to
  // errors; `possible` whether they do.
  const Kernels* find(const std::string& wanted, at::ScalarType dtype, c10::DeviceType device, const std::string& task,
                      bool possible) const {
    if (wanted == "composed") return nullptr;
    const auto element = element_of(dtype);
    possible = possible && element && device == c10::DeviceType::CPU;
    if (wanted == "auto") {
      if (!possible) return nullptr;
      return of(dtype == at::kDouble ? InstructionSet::portable : choose_instruction_set(wanted), *element);
    }
    const auto set = choose_instruction_set(wanted);
    TORCH_CHECK_VALUE(possible, operator_name, ": kernel '", wanted, "' does not compute ", task, " in ", dtype, " on ",
                      c10::DeviceTypeName(device, /*lower_case=*/true), "; 'composed' does");
    const auto* kernels = of(set, *element);
    TORCH_CHECK_VALUE(kernels, operator_name, ": kernel '", wanted, "' does not compute in ", dtype,
                      "; 'portable' and 'composed' do");
    return kernels;
  }
};

// What wraps those kernels as an implementation: one for each table, made once.
template <class Implementation, class Kernels>
const Implementation* implementation_of(const KernelFamily<Kernels>& family, const Kernels* kernels) {
  static const auto all = [&] {
    std::map<const Kernels*, Implementation> found;
    for (const auto set : available_instruction_sets())
      for (const auto element : {Element::float32, Element::float64, Element::bfloat16})
        if (const auto* table = family.of(set, element)) found.emplace(table, *table);
    return found;
  }();
  return kernels ? &all.at(kernels) : nullptr;
}

// Why a method whose option is kernel=`wanted` cannot, or nothing; `label` is the method's.
inline std::optional<std::string> why_no_kernel(const std::string& label, const std::string& wanted, at::ScalarType dtype,
                                                c10::DeviceType device) {
  if (wanted == "auto" || wanted == "composed") return std::nullopt;
  const bool on_cuda = wanted.starts_with("cuda");
  if (on_cuda != (device == cuda_device())) return label + " has a kernel for " + (on_cuda ? "CUDA" : "the CPU") + " only";
  if (dtype == at::kDouble && wanted != "portable" && wanted != "cuda-plain") return label + " has no kernel for float64";
  return std::nullopt;
}

// Why `ask` throws c10::ValueError, in the words of the method with this label, or nothing.
template <class Ask>
std::optional<std::string> refusal(const std::string& label, const Ask& ask) {
  try {
    ask();
  } catch (const c10::ValueError& error) {
    return label + ": " + error.what_without_backtrace();
  }
  return std::nullopt;
}

// Numbers for each thread.
class ThreadScratch {
 public:
  ThreadScratch(int64_t numbers, const at::TensorOptions& options)
      : memory_(at::empty({at::get_num_threads(), numbers}, options)) {}
  void* of_this_thread() const {
    return static_cast<char*>(memory_.data_ptr()) + memory_.element_size() * at::get_thread_num() * memory_.stride(0);
  }

 private:
  at::Tensor memory_;
};

// The elements of each row side by side: the tensor itself, or a copy.
inline at::Tensor with_dense_rows(const at::Tensor& x) { return x.stride(3) == 1 || x.size(3) == 1 ? x : x.contiguous(); }

// The rows of one (batch entry, head) of x [B,H,T,dim]; nothing of an undefined tensor.
inline Rows rows_of_head(const at::Tensor& x, int64_t index) {
  if (!x.defined()) return {};
  const auto batch = index / x.size(1), head = index % x.size(1);
  return {static_cast<char*>(x.data_ptr()) + int64_t(x.element_size()) * (batch * x.stride(0) + head * x.stride(1)), x.stride(2)};
}

}  // namespace attn::kernels
