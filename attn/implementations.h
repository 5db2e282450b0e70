// Chooses the implementation that computes a problem of an operator: kernels for the CPU, kernels for a GPU, or none. Where there
// is none, the operator composes the computation of ATen operations.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "attn/element_type.h"
#include "attn/options.h"

namespace attn {

// The element type of tensors of this dtype; nothing for a dtype that no kernel supports.
std::optional<ElementType> element_type_of(at::ScalarType dtype);

// The accumulator dtype for tensors of this dtype: float64 for float64, float32 for every other dtype.
inline at::ScalarType accumulator_dtype(at::ScalarType dtype) { return dtype == at::kDouble ? at::kDouble : at::kFloat; }

// Whether PyTorch records an operation on these tensors, so that gradients may be computed from its results.
bool records_gradients(at::TensorList tensors);

// The two words that an option or an argument `implementation` may be besides the name of an implementation: the best one that
// computes the request, and none, so that the operator composes the computation of ATen operations.
inline constexpr auto kAutoImplementation = "auto", kComposedImplementation = "composed";

// The option `implementation` of a method whose operator has implementations of these names.
OptionSpec implementation_option(const std::vector<std::string>& names);

// Everything that the choice of an implementation depends on. Where the choice of an operator depends on more, the operator
// derives its own request from this one.
struct ImplementationRequest {
  std::string wanted;  // kAutoImplementation, kComposedImplementation, or the name of an implementation
  at::ScalarType dtype;
  c10::DeviceType device;
  int64_t head_dim, value_dim;
  // Whether gradients will be computed: the implementation must then be able to run both passes. A request that does not know
  // says true.
  bool gradients = true;
  c10::DeviceIndex device_index = -1;  // of a GPU; −1: the current one

  bool operator==(const ImplementationRequest&) const = default;
};

namespace detail {
// What the operator `operator_name` says about an implementation that was named and does not compute the request, for `reason`;
// `others` are the names of the implementations that do.
std::string refusal_of_implementation(const std::string& operator_name, const std::string& wanted, const std::string& reason,
                                      std::vector<std::string> others);
// What it says about a name that no implementation for this type of device has; `known` are the names that some have.
// `is_loaded` says whether any are registered for it.
std::string unknown_implementation(const std::string& operator_name, const std::string& wanted, c10::DeviceType device,
                                   std::vector<std::string> known, bool is_loaded);
}  // namespace detail

// An implementation that users can ask for by its name.
template <class Implementation, class Request>
struct NamedImplementation {
  std::string name;  // in options, operators and records, such as "avx512"
  // Why it cannot compute a request, whatever the request wants, as the end of a sentence that begins with its name, such as
  // "does not compute in Double"; empty if it can.
  std::function<std::string(const Request&)> why_not;
  // The implementation, never null, for a request that it can compute.
  std::function<const Implementation*(const Request&)> get;
  bool only_by_name = false;  // whether "auto" passes over it
  bool in_tf32 = false;       // whether it rounds float32 to TF32, which has as many bits after the binary point as float16
};

// The implementation that was chosen for a request: null for "composed", for "auto" where there is none, and where a named one
// cannot compute the request. In the last case `error` says so, and is otherwise empty.
template <class Implementation>
struct ChosenImplementation {
  const Implementation* implementation = nullptr;
  std::string error;
};

// The implementations of one operator, which register themselves: those for the CPU in libattn, and those for a GPU when their
// library is loaded, such as libattn-cuda.so, so that programs for the CPU need not load CUDA. All are registered by
// initialisers of the libraries, before anything searches for one.
template <class Implementation_, class Request_>
class ImplementationRegistry {
 public:
  using Implementation = Implementation_;
  using Request = Request_;
  using Named = NamedImplementation<Implementation, Request>;

  // `operator_name` is the beginning of error messages.
  explicit ImplementationRegistry(const char* operator_name) : operator_name_(operator_name) {}

  // `all` are in the order in which "auto" tries them. Throws c10::Error if implementations for the device are registered
  // already.
  void register_cpu(std::vector<Named> all) {
    TORCH_CHECK(on_cpu_.empty(), operator_name_, ": CPU kernels are registered twice");
    on_cpu_ = std::move(all);
  }
  void register_gpu(c10::DeviceType device, std::vector<Named> all) {
    TORCH_CHECK(on_gpu_.emplace(device, std::move(all)).second, operator_name_, ": GPU kernels are registered twice for ",
                device);
  }

  // "auto" chooses the first implementation for the device that can compute the request. A named one is chosen or refused.
  ChosenImplementation<Implementation> choose(const Request& request) const {
    if (request.wanted == kComposedImplementation) return {};
    const auto* all = all_for(request.device);
    if (request.wanted == kAutoImplementation) {
      if (all)
        for (const auto& one : *all)
          if (!one.only_by_name && one.why_not(request).empty()) return {one.get(request), {}};
      return {};
    }
    const auto* const named = all ? find_in(*all, request.wanted) : nullptr;
    if (!named)
      return {nullptr, detail::unknown_implementation(operator_name_, request.wanted, request.device,
                                                      all ? names(*all, nullptr) : std::vector<std::string>(), all != nullptr)};
    if (const auto reason = named->why_not(request); !reason.empty())
      return {nullptr, detail::refusal_of_implementation(operator_name_, request.wanted, reason, names(*all, &request))};
    return {named->get(request), {}};
  }

  // As choose(). Throws c10::ValueError if the named implementation is unknown or cannot compute the request.
  const Implementation* find(const Request& request) const {
    const auto chosen = choose(request);
    TORCH_CHECK_VALUE(chosen.error.empty(), chosen.error);
    return chosen.implementation;
  }

  // Whether GPU kernels are registered for this type of device. The emulation of CUDA in the tests registers them for the CPU.
  bool has_gpu_kernels(c10::DeviceType device) const { return on_gpu_.contains(device); }

  // The implementation with this name for any device; null where there is none.
  const Named* named(const std::string& name) const {
    for (const auto& [device, all] : on_gpu_)
      if (const auto* const found = find_in(all, name)) return found;
    return find_in(on_cpu_, name);
  }

 private:
  // Null for CUDA without its library. Implementations for the CPU are asked about every other type of device, and refuse it.
  const std::vector<Named>* all_for(c10::DeviceType device) const {
    if (const auto gpu = on_gpu_.find(device); gpu != on_gpu_.end()) return &gpu->second;
    return device == c10::DeviceType::CUDA ? nullptr : &on_cpu_;
  }
  static const Named* find_in(const std::vector<Named>& all, const std::string& name) {
    const auto found = std::find_if(all.begin(), all.end(), [&](const Named& one) { return one.name == name; });
    return found == all.end() ? nullptr : &*found;
  }
  // The names of all, or of those that can compute a request.
  static std::vector<std::string> names(const std::vector<Named>& all, const Request* request) {
    std::vector<std::string> found;
    for (const auto& one : all)
      if (!request || one.why_not(*request).empty()) found.push_back(one.name);
    return found;
  }

  const char* operator_name_;
  std::vector<Named> on_cpu_;
  std::map<c10::DeviceType, std::vector<Named>> on_gpu_;
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
    const auto& chosen = choose(request);
    TORCH_CHECK_VALUE(chosen.error.empty(), chosen.error);
    return chosen.implementation;
  }

  // Why the method called `label`, whose option `implementation` is request.wanted, cannot compute the request; nothing if it
  // can.
  std::optional<std::string> why_unsupported(const std::string& label, const Request& request) const {
    const auto& error = choose(request).error;
    return error.empty() ? std::nullopt : std::optional(label + ": " + error);
  }

  // As AttentionMethod::takes_float16() for a method that uses these implementations.
  bool takes_float16(c10::DeviceType device) const {
    return device == c10::DeviceType::CUDA || registry_.has_gpu_kernels(device);
  }

  // As AttentionMethod::error_tolerance() for tensors of this dtype, which the implementation named `wanted` may round.
  at::ScalarType precision(const std::string& wanted, at::ScalarType dtype) const {
    const auto* const named = registry_.named(wanted);
    return named && named->in_tf32 && dtype == at::kFloat ? at::kHalf : dtype;
  }

 private:
  const ChosenImplementation<Implementation>& choose(const Request& request) const {
    if (!last_ || !(last_->first == request)) last_.emplace(request, registry_.choose(request));
    return last_->second;
  }

  const Registry& registry_;
  mutable std::optional<std::pair<Request, ChosenImplementation<Implementation>>> last_;
};

}  // namespace attn
