// Chooses the implementation that computes a problem of an operator: kernels for the CPU, kernels for a GPU, or none. Where there
// is none, the operator composes the computation of ATen operations.
#pragma once

#include <ATen/core/Tensor.h>
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

// The element type of tensors of this dtype; nothing for a dtype that no kernel supports.
std::optional<ElementType> element_type_of(at::ScalarType dtype);

// The accumulator dtype for tensors of this dtype: float64 for float64, float32 for every other dtype.
inline at::ScalarType accumulator_dtype(at::ScalarType dtype) { return dtype == at::kDouble ? at::kDouble : at::kFloat; }

// Whether PyTorch records an operation on these tensors, so that gradients may be computed from its results.
bool records_gradients(at::TensorList tensors);

// Everything that the choice of an implementation depends on. Where the choice of an operator depends on more, the operator
// derives its own request from this one.
struct ImplementationRequest {
  std::string wanted;  // "auto" (the best available implementation), "composed" (none), or the name of an implementation
  at::ScalarType dtype;
  c10::DeviceType device;
  int64_t head_dim, value_dim;
  // Whether gradients will be computed: the implementation must then be able to run both passes. A request that does not know
  // says true.
  bool gradients = true;
  c10::DeviceIndex device_index = -1;  // of a GPU; −1: the current one

  bool operator==(const ImplementationRequest&) const = default;
};

// Whether GPU kernels run on this type of device: true for CUDA, and for any other type that a library has registered them for.
// The emulation of CUDA in the tests registers them for the CPU.
bool runs_gpu_kernels(c10::DeviceType device);

namespace detail {
void set_runs_gpu_kernels(c10::DeviceType device);
}

// The implementations of one operator. Those for the CPU are passed to the constructor. A library of GPU kernels, such as
// libattn-cuda.so, registers its own when it is loaded, so that programs for the CPU need not load CUDA.
template <class Implementation_, class Request_>
class ImplementationRegistry {
 public:
  using Implementation = Implementation_;
  using Request = Request_;
  // Finds the implementation for a request; null if the request is "auto" and no implementation computes it. Throws
  // c10::ValueError if the named implementation is unknown or cannot compute the request.
  using Find = const Implementation* (*)(const Request& request);

  // `operator_name` is the beginning of error messages. `find_on_cpu` is also called for devices other than CUDA that have no
  // registered GPU kernels.
  ImplementationRegistry(const char* operator_name, Find find_on_cpu)
      : operator_name_(operator_name), find_on_cpu_(find_on_cpu) {}

  void register_gpu(c10::DeviceType device, Find find_on_gpu) {
    TORCH_CHECK(on_gpu_.emplace(device, find_on_gpu).second, operator_name_, ": GPU kernels are registered twice for ", device);
    detail::set_runs_gpu_kernels(device);
  }

  // The requested implementation; null for "composed", and for "auto" where there is none. Throws as Find does.
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

// Finds implementations for one method. A method needs the implementation of the same problem in several places, so the last
// result is cached.
template <class Registry>
class ImplementationResolver {
 public:
  using Implementation = typename Registry::Implementation;
  using Request = typename Registry::Request;

  explicit ImplementationResolver(const Registry& registry) : registry_(registry) {}

  // As ImplementationRegistry::find().
  const Implementation* find(const Request& request) const {
    const auto& result = resolve(request);
    TORCH_CHECK_VALUE(!result.error, *result.error);
    return result.implementation;
  }

  // Why the method called `label`, whose option `kernel` is request.wanted, cannot compute the request; nothing if it can.
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
    const auto& error = resolve(request).error;
    return error ? std::optional(label + ": " + *error) : std::nullopt;
  }

 private:
  struct Result {
    const Implementation* implementation = nullptr;
    std::optional<std::string> error;  // the message of the c10::ValueError that Find threw
  };

  const Result& resolve(const Request& request) const {
    if (last_ && last_->first == request) return last_->second;
    Result result;
    try {
      result.implementation = registry_.find(request);
    } catch (const c10::ValueError& error) {
      result.error = error.what_without_backtrace();
    }
    return last_.emplace(request, std::move(result)).second;
  }

  const Registry& registry_;
  mutable std::optional<std::pair<Request, Result>> last_;
};

}  // namespace attn
