// Which implementation computes a problem of an operator: kernels for the CPU, kernels for a GPU, or none. An operator without an
// implementation for a problem is composed of ATen operations.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>
#include <c10/util/Exception.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "attn/element_type.h"

namespace attn {

// Nothing for types that no kernel computes with.
std::optional<ElementType> element_type_of(at::ScalarType dtype);

// The dtype of sums over tensors of this dtype: float32, or float64 for float64.
inline at::ScalarType accumulator_dtype(at::ScalarType dtype) { return dtype == at::kDouble ? at::kDouble : at::kFloat; }

// Everything that decides which implementation computes a problem. Operators for which more decides derive their own request.
struct ImplementationRequest {
  std::string wanted;  // "auto": the best there is; "composed": none; otherwise the name of an implementation
  at::ScalarType dtype;
  c10::DeviceType device;
  int64_t head_dim, value_dim;

  bool operator==(const ImplementationRequest&) const = default;
};

// Whether kernels for GPUs run on this type of device: on CUDA, and on any other type that a library has registered them for.
bool runs_gpu_kernels(c10::DeviceType device);

namespace detail {
void set_runs_gpu_kernels(c10::DeviceType device);
}

// The implementations of one operator. Those for the CPU are known from the beginning; a library of GPU kernels, such as
// libattn-cuda.so, registers its own when it is loaded, so that programs for the CPU need not load CUDA.
template <class Implementation_, class Request_>
class ImplementationRegistry {
 public:
  using Implementation = Implementation_;
  using Request = Request_;
  // Returns null for "auto" where there is no implementation. Throws c10::ValueError when the named implementation is unknown or
  // cannot compute the request.
  using Find = const Implementation* (*)(const Request& request);

  // `operator_name` begins the error messages. `find_on_cpu` also answers for devices that nobody has registered.
  ImplementationRegistry(const char* operator_name, Find find_on_cpu)
      : operator_name_(operator_name), find_on_cpu_(find_on_cpu) {}

  void register_gpu(c10::DeviceType device, Find find_on_gpu) {
    TORCH_CHECK(on_gpu_.emplace(device, find_on_gpu).second, operator_name_, ": GPU kernels are registered twice for ", device);
    detail::set_runs_gpu_kernels(device);
  }

  // The implementation that was asked for, or null for "composed", and for "auto" where there is none. Throws as Find does.
  const Implementation* find(const Request& request) const {
    if (request.wanted == "composed") return nullptr;
    if (const auto gpu = on_gpu_.find(request.device); gpu != on_gpu_.end()) return gpu->second(request);
    if (request.device != c10::DeviceType::CUDA) return find_on_cpu_(request);
    TORCH_CHECK_VALUE(request.wanted == "auto", operator_name_, ": kernel '", request.wanted,
                      "' on CUDA needs libattn-cuda.so, which is not loaded");
    return nullptr;
  }

 private:
  const char* operator_name_;
  Find find_on_cpu_;
  std::map<c10::DeviceType, Find> on_gpu_;
};

// Finds implementations for one method and remembers the last answer. A method asks for the implementation of a problem in
// several places; it is looked for once.
template <class Registry>
class ImplementationResolver {
 public:
  using Implementation = typename Registry::Implementation;
  using Request = typename Registry::Request;

  explicit ImplementationResolver(const Registry& registry) : registry_(registry) {}

  // As ImplementationRegistry::find().
  const Implementation* find(const Request& request) const {
    const auto& answer = resolve(request);
    TORCH_CHECK_VALUE(!answer.refusal, *answer.refusal);
    return answer.implementation;
  }

  // Why the method called `label`, whose option is kernel=`request.wanted`, cannot compute the request; nothing when it can.
  std::optional<std::string> why_unsupported(const std::string& label, const Request& request) const {
    const auto& wanted = request.wanted;
    if (wanted == "composed") return std::nullopt;
    if (wanted != "auto") {
      const bool for_gpu = wanted.starts_with("cuda");
      if (for_gpu != runs_gpu_kernels(request.device))
        return label + " has a kernel for " + (for_gpu ? "CUDA" : "the CPU") + " only";
      if (request.dtype == at::kDouble && wanted != "portable" && wanted != "cuda-plain")
        return label + " has no kernel for float64";
    }
    const auto& refusal = resolve(request).refusal;
    return refusal ? std::optional(label + ": " + *refusal) : std::nullopt;
  }

 private:
  struct Answer {
    const Implementation* implementation = nullptr;
    std::optional<std::string> refusal;  // the message of the c10::ValueError
  };

  const Answer& resolve(const Request& request) const {
    if (last_ && last_->first == request) return last_->second;
    Answer answer;
    try {
      answer.implementation = registry_.find(request);
    } catch (const c10::ValueError& error) {
      answer.refusal = error.what_without_backtrace();
    }
    return last_.emplace(request, std::move(answer)).second;
  }

  const Registry& registry_;
  mutable std::optional<std::pair<Request, Answer>> last_;
};

}  // namespace attn
