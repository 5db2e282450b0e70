// Calls an attention function with tensors of the worker, and checks what it returns.
#include "harness/worker/python/python_method.h"

#include <ATen/ATen.h>
#include <c10/util/Exception.h>
#include <torch/csrc/autograd/python_variable.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <utility>
#include <vector>

#include "attn/registry.h"
#include "harness/worker/python/interpreter.h"
#include "harness/worker/python/module.h"

namespace attnbench {
namespace {

namespace py = pybind11;

constexpr int kOverheadCalls = 201;
constexpr int kOverheadWarmup = 50;

// What to do about a function that returns a tuple or a list.
constexpr const char* kDeclareTuple =
    "; if its first element is the output, declare that with @attnbench.method(returns_tuple=True)";

std::shared_ptr<attn::AttentionMethod> named_method(const std::string& name) {
  return name.empty() ? nullptr : attn::make_method(name);
}

// The registered method whose reference is used. What the function declares counts more than the option `like`, which may be
// meant for other functions of the same sweep.
std::string exact_name(const attn::Options& options, const Json& description) {
  if (const std::string exact = description.at("exact"); !exact.empty()) return exact;
  return description.at("has_reference").get<bool>() ? "" : options.text("like");
}

// q, k and v, and the further tensors that the function has a parameter for.
std::vector<attn::InputSpec> inputs_of(const Json& description) {
  auto inputs = attn::query_key_value();
  for (const auto& [name, required] : description.at("tensors").items()) {
    inputs.push_back(attn::find_input(name));
    inputs.back().required = required.get<bool>();
  }
  return inputs;
}

Json option_values(const attn::Options& options, const Json& description) {
  auto values = Json::object();
  for (const auto& option : description.at("options")) {
    const std::string name = option.at("name");
    values[name] = std::visit([](const auto& value) { return Json(value); }, options.value(name));
  }
  return values;
}

Json problem_json(const attn::Problem& p, attn::Protocol protocol) {
  return {{"batch", p.batch},
          {"heads", p.heads},
          {"kv_heads", p.key_head_count()},
          {"value_heads", p.value_head_count()},
          {"query_len", p.query_len},
          {"key_len", p.key_len},
          {"max_tokens", p.key_len},
          {"head_dim", p.head_dim},
          {"value_dim", p.value_dim},
          {"dtype", attn::dtype_name(p.dtype)},
          {"device", c10::DeviceTypeName(p.device, /*lower_case=*/true)},
          {"causal", p.causal},
          {"pattern", p.pattern.text()},
          {"packed", p.packed.text()},
          {"sinks", p.sinks},
          {"protocol", attn::protocol_name(protocol)}};
}

class PythonState final : public attn::DecodingState {
 public:
  explicit PythonState(SharedObject state) : state_(std::move(state)), step_(shared_object(state_->attr("step"))) {}

  const SharedObject& object() const { return state_; }
  const SharedObject& step() const { return step_; }

 protected:
  std::vector<at::Tensor> tensors() const override {
    const Bridge bridge;
    return bridge.checked([&] {
      std::vector<at::Tensor> all;
      for (const auto& item : state_->attr("tensors")()) all.push_back(THPVariable_Unpack(item.ptr()));
      return all;
    });
  }

 private:
  SharedObject state_, step_;
};

const PythonState& python(const attn::DecodingState& state) { return dynamic_cast<const PythonState&>(state); }

py::object wrapped(const at::Tensor& tensor) { return py::reinterpret_steal<py::object>(THPVariable_Wrap(tensor)); }
py::object wrapped(const std::optional<at::Tensor>& tensor) { return tensor ? wrapped(*tensor) : py::none(); }

// A mask as a keyword argument.
struct MaskArgument {
  const char* name;
  py::object (*value)(const attn::Mask& mask);
};
const MaskArgument kMasks[] = {
    {"causal", [](const attn::Mask& mask) -> py::object { return py::bool_(mask.causal); }},
    {"key_lengths", [](const attn::Mask& mask) { return wrapped(mask.key_lengths); }},
    {"pattern", [](const attn::Mask& mask) -> py::object { return py::str(mask.pattern.text()); }},
    {"cu_seqlens", [](const attn::Mask& mask) { return wrapped(mask.cu_seqlens); }},
};

double seconds() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

std::string type_text(PyObject* object) { return py::str(py::type::of(py::handle(object)).attr("__name__")); }

}  // namespace

SharedObject shared_object(py::object object) {
  return {new py::object(std::move(object)), [](py::object* held) {
            const py::gil_scoped_acquire gil;
            delete held;
          }};
}

PythonMethod::PythonMethod(SharedObject method, Json description, const attn::Options& options)
    : description_(std::move(description)),
      exact_(named_method(exact_name(options, description_))),
      approximated_(named_method(description_.at("approximates"))),
      inputs_(inputs_of(description_)),
      takes_(std::size(kMasks)) {
  const auto names = description_.at("masks").get<std::vector<std::string>>();
  for (size_t i = 0; i < takes_.size(); ++i) takes_[i] = std::find(names.begin(), names.end(), kMasks[i].name) != names.end();
  const Bridge bridge;
  bridge.checked([&] {
    active_ = nullptr;  // bind() changes what is active, also if it throws
    bound_ = shared_object(method->attr("bind")(option_values(options, description_).dump()));
    active_ = this;
    forward_ = shared_object(bound_->attr("forward"));
    shown_name_ = bound_->attr("label").cast<std::string>();
    length_multiple_ = bound_->attr("length_multiple").cast<int64_t>();
    py::list keywords;
    for (size_t i = 0; i < takes_.size(); ++i)
      if (takes_[i]) keywords.append(kMasks[i].name);
    for (const auto& spec : further()) keywords.append(spec.name);
    keyword_names_ = shared_object(py::tuple(keywords));
  });
  ran_ = "python/" + std::string(py::str(method->attr("name")));
}

template <class Work>
auto PythonMethod::in_python(const Work& work) const {
  const Bridge bridge;
  return bridge.checked([&] {
    if (active_ != this) bound_->attr("activate")();
    active_ = this;
    return work();
  });
}

attn::Capabilities PythonMethod::capabilities() const {
  attn::Capabilities can;
  can.inputs = inputs_;
  const auto flag = [&](const char* name) { return description_.at(name).get<bool>(); };
  can.full = flag("full");
  can.causal = flag("causal");
  can.cross_attention = flag("cross_attention");
  if (flag("shared_heads")) can.shared_heads = attn::SharedHeads::read;
  can.key_lengths = flag("key_lengths");
  can.patterns = flag("patterns");
  can.packed = flag("packed");
  can.length_multiple = length_multiple_;
  can.gradients = !description_.at("gradients").empty();
  can.decoding = flag("decoding");
  can.dtypes.clear();
  for (const std::string dtype : description_.at("dtypes")) can.dtypes.push_back(attn::parse_dtype(dtype));
  can.devices.clear();
  for (const std::string device : description_.at("devices")) can.devices.push_back(c10::Device(device).type());
  return can;
}

std::optional<std::string> PythonMethod::why_unsupported(const attn::Problem& problem, attn::Protocol protocol) const {
  if (const std::string missing = description_.at("unavailable"); !missing.empty()) return missing;
  const auto device = c10::DeviceTypeName(problem.device, /*lower_case=*/true);
  const auto& devices = description_.at("gradients");
  if (protocol == attn::Protocol::forward_backward && std::find(devices.begin(), devices.end(), device) == devices.end())
    return label() + " has no gradients on " + device;
  return ForeignMethod::why_unsupported(problem, protocol);
}

// Without a formula of the function, these are lower bounds: every input is read and every result is written.
attn::Cost PythonMethod::cost(const attn::Problem& p, attn::Protocol protocol) const {
  auto bytes = p.output_bytes();
  for (const auto& spec : inputs_)
    if (spec.is_part_of(p)) bytes += spec.bytes(p);
  attn::Cost cost;
  cost.flops = std::nan("");
  if (protocol == attn::Protocol::decode) {
    cost.min_bytes = cost.peak_bytes = bytes / std::max<double>(1, double(p.query_len));
    return cost;
  }
  const bool differentiates = protocol == attn::Protocol::forward_backward;
  cost.min_bytes = cost.peak_bytes = (differentiates ? 2 : 1) * bytes;
  if (!description_.at("has_flops").get<bool>()) return cost;
  const auto forward =
      in_python([&] { return bound_->attr("flops")(problem_json(p, attn::Protocol::forward).dump()).cast<double>(); });
  // The backward of a product computes two products of the same size.
  cost.flops = differentiates ? 3 * forward : forward;
  return cost;
}

at::Tensor PythonMethod::reference(const attn::Inputs& inputs, const at::Tensor& rows) const {
  if (exact_) return exact_->reference(inputs, rows);
  TORCH_CHECK_VALUE(has_reference(), label(), " has no reference");
  return in_python([&] {
    py::dict masks;
    for (const auto& mask : kMasks) masks[mask.name] = mask.value(inputs.mask);
    const auto output = bound_->attr("reference")(wrapped(inputs.q), wrapped(inputs.k), wrapped(inputs.v), masks, wrapped(rows),
                                                  wrapped(inputs.head_indices()), inputs.heads_of_call(), **keywords(inputs));
    return at::Tensor(THPVariable_Unpack(output.ptr()));
  });
}

std::optional<attn::ExactAttention> PythonMethod::exact_attention(const attn::Inputs& inputs, const at::Tensor& rows) const {
  if (!approximated_) return std::nullopt;
  auto exact = approximated_->exact_attention(inputs, rows);
  if (exact) exact->output = approximated_->reference(inputs, rows);
  return exact;
}

bool PythonMethod::reference_computes_all_rows() const {
  return !exact_ && description_.value("reference_computes_all_rows", false);
}

double PythonMethod::state_bytes(const attn::Problem&, int64_t) const { return std::nan(""); }

bool PythonMethod::set_up(const attn::Problem& problem, attn::Protocol protocol) {
  in_python([&] {
    bound_->attr("set_up")(problem_json(problem, protocol).dump());
    forward_ = shared_object(bound_->attr("forward"));
  });
  return has_setup();
}

bool PythonMethod::has_setup() const { return description_.at("has_setup"); }

at::Tensor PythonMethod::checked_output(PyObject* output, const attn::Inputs& inputs) const {
  TORCH_CHECK_VALUE(THPVariable_Check(output), label(), " returned ", type_text(output), ", expected a tensor",
                    PyTuple_Check(output) || PyList_Check(output) ? kDeclareTuple : "");
  const auto& tensor = THPVariable_Unpack(output);
  const auto &q = inputs.q, &v = inputs.v;
  const auto heads = inputs.output_heads();
  const bool fits = tensor.dim() == 4 && tensor.size(0) == q.size(0) && tensor.size(1) == heads && tensor.size(2) == q.size(2) &&
                    tensor.size(3) == v.size(3);
  TORCH_CHECK_VALUE(fits && tensor.scalar_type() == q.scalar_type() && tensor.device() == q.device(), label(), " returned ",
                    attn::dtype_name(tensor.scalar_type()), " ", tensor.sizes(), " on ", tensor.device(), ", expected ",
                    attn::dtype_name(q.scalar_type()), " [", q.size(0), ", ", heads, ", ", q.size(2), ", ", v.size(3), "] on ",
                    q.device());
  return tensor;
}

py::dict PythonMethod::keywords(const attn::Inputs& inputs) const {
  py::dict tensors;
  for (const auto& spec : further())
    tensors[spec.name] = (inputs.*spec.member).defined() ? wrapped(inputs.*spec.member) : py::none();
  return tensors;
}

at::Tensor PythonMethod::call(py::handle function, const attn::Inputs& inputs) const {
  constexpr size_t kMaxArguments = std::size(attn::kInputs) + std::size(kMasks);
  std::array<py::object, kMaxArguments> arguments = {wrapped(inputs.q), wrapped(inputs.k), wrapped(inputs.v)};
  size_t count = 3;
  for (size_t i = 0; i < takes_.size(); ++i)
    if (takes_[i]) arguments[count++] = kMasks[i].value(inputs.mask);
  for (const auto& spec : further())
    arguments[count++] = (inputs.*spec.member).defined() ? wrapped(inputs.*spec.member) : py::none();
  std::array<PyObject*, kMaxArguments> pointers{};
  for (size_t i = 0; i < count; ++i) pointers[i] = arguments[i].ptr();
  const auto output = py::reinterpret_steal<py::object>(
      PyObject_Vectorcall(function.ptr(), pointers.data(), 3, count > 3 ? keyword_names_->ptr() : nullptr));
  if (!output) throw py::error_already_set();
  return checked_output(output.ptr(), inputs);
}

at::Tensor PythonMethod::attend(const attn::Inputs& inputs) {
  ran(ran_);
  return in_python([&] { return call(*forward_, inputs); });
}

double PythonMethod::call_overhead_us(const attn::Inputs& inputs) {
  const auto heads = inputs.output_heads();
  const auto shape = std::vector<int64_t>{inputs.q.size(0), heads, inputs.q.size(2), inputs.v.size(3)};
  const auto output = at::empty(shape, inputs.q.options().requires_grad(false));
  SharedObject nothing;
  {
    const Bridge bridge;
    nothing = bridge.checked([&] { return shared_object(bound_->attr("nothing")(wrapped(output))); });
  }
  std::vector<double> times;
  for (int i = -kOverheadWarmup; i < kOverheadCalls; ++i) {
    const auto begin = seconds();
    {
      const Bridge bridge;
      bridge.checked([&] { return call(*nothing, inputs); });
    }
    if (i >= 0) times.push_back((seconds() - begin) * 1e6);
  }
  std::nth_element(times.begin(), times.begin() + kOverheadCalls / 2, times.end());
  return times[kOverheadCalls / 2];
}

std::unique_ptr<attn::DecodingState> PythonMethod::make_state(const attn::Problem& problem) const {
  return in_python([&]() -> std::unique_ptr<attn::DecodingState> {
    const auto text = problem_json(problem, attn::Protocol::decode).dump();
    return std::make_unique<PythonState>(shared_object(bound_->attr("begin_decoding")(text)));
  });
}

void PythonMethod::absorb(attn::DecodingState& state, const attn::Inputs& tokens) {
  in_python([&] {
    python(state).object()->attr("extend")(wrapped(tokens.q), wrapped(tokens.k), wrapped(tokens.v), **keywords(tokens));
  });
}

at::Tensor PythonMethod::decode(attn::DecodingState& state, const attn::Inputs& token) {
  ran(ran_);
  return in_python([&] {
    const auto output = (*python(state).step())(wrapped(token.q), wrapped(token.k), wrapped(token.v), **keywords(token));
    return checked_output(output.ptr(), token);
  });
}

at::Tensor PythonMethod::fill(attn::DecodingState& state, const attn::Inputs& tokens) {
  ran(ran_);
  return in_python([&] {
    const auto output =
        python(state).object()->attr("prefill")(wrapped(tokens.q), wrapped(tokens.k), wrapped(tokens.v), **keywords(tokens));
    return checked_output(output.ptr(), tokens);
  });
}

}  // namespace attnbench

void attnbench_python_entry(const std::string& file, const std::string& function, const std::string& name,
                            attn::MethodEntry& entry, std::string& digest) {
  using namespace attnbench;
  const Bridge bridge;
  bridge.checked([&] {
    py::list further_tensors;
    for (size_t i = attn::query_key_value().size(); i < std::size(attn::kInputs); ++i)
      further_tensors.append(attn::kInputs[i].name);
    bridge.module().attr("check_inputs")(further_tensors);
    const auto method = shared_object(bridge.module().attr("Method")(file, function));
    const auto description = parse_json(method->attr("description")().cast<std::string>());
    entry.name = name;
    entry.description = description.at("description");
    entry.time_order = description.at("time_order");
    entry.memory_order = description.at("memory_order");
    for (const auto& option : description.at("options")) {
      attn::OptionSpec spec{option.at("name"), {}, option.at("description"), option.at("choices"), option.at("min"),
                            option.at("max")};
      const auto& value = option.at("default");
      if (value.is_boolean()) spec.default_value = value.get<bool>();
      else if (value.is_number_integer()) spec.default_value = value.get<int64_t>();
      else if (value.is_number()) spec.default_value = value.get<double>();
      else spec.default_value = value.get<std::string>();
      entry.options.push_back(std::move(spec));
    }
    digest = description.at("digest");
    entry.factory = [method, description](const attn::Options& options) -> std::shared_ptr<attn::AttentionMethod> {
      return std::make_shared<PythonMethod>(method, description, options);
    };
  });
}

const char* attnbench_python_version() {
  using namespace attnbench;
  static const auto text = [] {
    const Bridge bridge;
    return bridge.checked([&] { return bridge.module().attr("version")().cast<std::string>(); });
  }();
  return text.c_str();
}
