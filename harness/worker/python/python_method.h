// PythonMethod: an attention function of a Python file as a method.
#pragma once

#include <pybind11/pybind11.h>

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "attn/options.h"
#include "harness/schema/json.h"
#include "harness/worker/methods/foreign_method.h"

namespace attnbench {

// A Python object that may be destroyed by any thread.
using SharedObject = std::shared_ptr<pybind11::object>;
SharedObject shared_object(pybind11::object object);

class PythonMethod final : public ForeignMethod {
 public:
  // `method` is a Method of attnbench._bridge, and `description` what its description() returns. Throws c10::ValueError for an
  // option `like` that names no registered method.
  PythonMethod(SharedObject method, Json description, const attn::Options& options);

  attn::Capabilities capabilities() const override;
  attn::Cost cost(const attn::Problem& problem, attn::Protocol protocol) const override;
  bool reference_computes_all_rows() const override;
  bool has_reference() const override { return exact_ != nullptr || description_.at("has_reference").get<bool>(); }
  at::Tensor reference(const attn::Inputs& inputs, const at::Tensor& rows) const override;
  std::optional<attn::ExactAttention> exact_attention(const attn::Inputs& inputs, const at::Tensor& rows) const override;
  std::optional<std::string> why_unsupported(const attn::Problem& problem, attn::Protocol protocol) const override;
  // NaN, because the size of a decoding state of a Python class is not known beforehand.
  double state_bytes(const attn::Problem& problem, int64_t position) const override;

  bool set_up(const attn::Problem& problem, attn::Protocol protocol) override;
  bool has_setup() const override;
  double call_overhead_us(const attn::Inputs& inputs) override;
  std::string shown_name() const override { return shown_name_; }
  std::string time_order(attn::Protocol protocol) const override { return order("time_order", protocol); }
  std::string memory_order(attn::Protocol protocol) const override { return order("memory_order", protocol); }

 protected:
  at::Tensor attend(const attn::Inputs& inputs) override;
  std::unique_ptr<attn::DecodingState> make_state(const attn::Problem& problem) const override;
  void absorb(attn::DecodingState& state, const attn::Inputs& tokens) override;
  at::Tensor decode(attn::DecodingState& state, const attn::Inputs& token) override;
  at::Tensor fill(attn::DecodingState& state, const attn::Inputs& tokens) override;

 private:
  std::string order(const std::string& of, attn::Protocol protocol) const {
    return description_.at(protocol == attn::Protocol::decode ? "decode_" + of : of);
  }
  // Runs `work`, which may run code of the function's file, with the GIL and with the imports of the file's folder. Throws
  // c10::ValueError with the traceback of a Python exception as its message.
  template <class Work>
  auto in_python(const Work& work) const;
  // The tensors beside q, k and v that the function reads. keywords() has them as keyword arguments, with None for an undefined
  // one.
  std::span<const attn::InputSpec> further() const { return std::span(inputs_).subspan(attn::query_key_value().size()); }
  pybind11::dict keywords(const attn::Inputs& inputs) const;
  at::Tensor call(pybind11::handle function, const attn::Inputs& inputs) const;
  at::Tensor checked_output(PyObject* output, const attn::Inputs& inputs) const;

  Json description_;
  std::shared_ptr<attn::AttentionMethod> exact_, approximated_;  // null if the function names none
  std::vector<attn::InputSpec> inputs_;
  std::vector<bool> takes_;  // for each mask in the table of the .cpp file, whether the function takes it as a keyword argument
  int64_t length_multiple_ = 1;
  std::string shown_name_;
  std::string ran_;             // the implementation in records
  SharedObject bound_;          // a Bound of attnbench._bridge
  SharedObject forward_;        // its attribute `forward`
  SharedObject keyword_names_;  // the tuple of the keyword arguments of a call

  inline static const PythonMethod* active_ = nullptr;  // the method from whose folder modules are imported
};

}  // namespace attnbench
