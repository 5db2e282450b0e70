// Makes PyTorch operators from a struct of their arguments: schema, conversion of arguments, autograd and calls.
//
// A struct of arguments lists its members in the order of the schema:
//
//   struct ScaleArguments {
//     at::Tensor x;
//     double factor;
//     static constexpr auto list() { return std::tuple{argument("x", &ScaleArguments::x),
//                                                      argument("factor", &ScaleArguments::factor, "1.0")}; }
//   };
//   std::tuple<at::Tensor> scale(const ScaleArguments& a) { return {a.x * a.factor}; }
//
//   TORCH_LIBRARY_FRAGMENT(attn, library) { define<ScaleArguments>(library, "scale", "Tensor"); }
//   TORCH_LIBRARY_IMPL(attn, CompositeImplicitAutograd, library) { library.impl("scale", kernel<scale>()); }
//
// A further argument is a member and an entry of list(). Functions take the struct, and return a tuple or a vector of tensors.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace attn {

template <class Arguments, class T>
struct Argument {
  const char* name;
  T Arguments::*member;
  const char* default_value;  // as the schema writes it; null if there is none
  const char* type;           // as the schema writes it; null for that of T
};

template <class Arguments, class T>
constexpr Argument<Arguments, T> argument(const char* name, T Arguments::*member, const char* default_value = nullptr,
                                          const char* type = nullptr) {
  return {name, member, default_value, type};
}

namespace detail {

template <class T>
constexpr const char* schema_type() {
  if constexpr (std::is_same_v<T, at::Tensor>) return "Tensor";
  else if constexpr (std::is_same_v<T, std::optional<at::Tensor>>) return "Tensor?";
  else if constexpr (std::is_same_v<T, bool>) return "bool";
  else if constexpr (std::is_same_v<T, int64_t>) return "int";
  else if constexpr (std::is_same_v<T, double>) return "float";
  else if constexpr (std::is_same_v<T, std::optional<double>>) return "float?";
  else if constexpr (std::is_same_v<T, std::string>) return "str";
  else if constexpr (std::is_same_v<T, std::optional<std::vector<int64_t>>>) return "int[]?";
  else static_assert(!sizeof(T), "no type of a schema for this argument");
}

template <class Arguments>
constexpr size_t argument_count() {
  return std::tuple_size_v<decltype(Arguments::list())>;
}

// Calls `visit` with each Argument of the struct.
template <class Arguments, class Visit>
void for_each_argument(const Visit& visit) {
  std::apply([&](const auto&... one) { (visit(one), ...); }, Arguments::list());
}

template <class Arguments>
void push_arguments(const Arguments& arguments, torch::jit::Stack& stack) {
  for_each_argument<Arguments>([&](const auto& one) { stack.emplace_back(arguments.*one.member); });
}

template <class Arguments>
Arguments pop_arguments(torch::jit::Stack& stack) {
  Arguments arguments;
  auto value = stack.end() - argument_count<Arguments>();
  for_each_argument<Arguments>([&](const auto& one) {
    arguments.*one.member = std::move(*value++).template to<std::decay_t<decltype(arguments.*one.member)>>();
  });
  torch::jit::drop(stack, argument_count<Arguments>());
  return arguments;
}

template <class... Tensors>
void push_results(std::tuple<Tensors...>&& results, torch::jit::Stack& stack) {
  std::apply([&](auto&... one) { (stack.emplace_back(std::move(one)), ...); }, results);
}
inline void push_results(std::vector<at::Tensor>&& results, torch::jit::Stack& stack) {
  for (auto& one : results) stack.emplace_back(std::move(one));
}

template <class Function>
struct ArgumentsOf;
template <class Results, class Arguments_>
struct ArgumentsOf<Results (*)(const Arguments_&)> {
  using Arguments = Arguments_;
};

template <auto function>
void call_boxed(const c10::OperatorHandle&, torch::jit::Stack* stack) {
  using Arguments = typename ArgumentsOf<decltype(function)>::Arguments;
  push_results(function(pop_arguments<Arguments>(*stack)), *stack);
}

}  // namespace detail

// Declares the operator `name` with the results `results`, such as "Tensor" or "(Tensor output, Tensor order)".
template <class Arguments>
void define(torch::Library& library, const std::string& name, const std::string& results) {
  auto schema = name + "(";
  bool first = true;
  detail::for_each_argument<Arguments>([&](const auto& one) {
    using T = std::decay_t<decltype(std::declval<Arguments>().*one.member)>;
    schema += (first ? "" : ", ") + std::string(one.type ? one.type : detail::schema_type<T>()) + " " + one.name;
    if (one.default_value) schema += std::string("=") + one.default_value;
    first = false;
  });
  library.def((schema + ") -> " + results).c_str(), {at::Tag::pt2_compliant_tag});
}

// A function of the struct of arguments as a kernel for Library::impl().
template <auto function>
torch::CppFunction kernel() {
  return torch::CppFunction::makeFromBoxedFunction<&detail::call_boxed<function>>();
}

// Calls an operator, "attn::name", through the dispatcher.
template <class Arguments>
std::vector<at::Tensor> call_operator(const c10::OperatorHandle& handle, const Arguments& arguments) {
  torch::jit::Stack stack;
  stack.reserve(detail::argument_count<Arguments>());
  detail::push_arguments(arguments, stack);
  handle.callBoxed(stack);
  std::vector<at::Tensor> results;
  results.reserve(stack.size());
  for (auto& value : stack) results.push_back(std::move(value).toTensor());
  return results;
}

inline c10::OperatorHandle find_operator(const char* name) { return c10::Dispatcher::singleton().findSchemaOrThrow(name, ""); }

// The autograd kernel of an operator. `Operator` has
//   Arguments, BackwardArguments     the structs of the arguments of the operator and of the operator of its backward pass
//   name, backward_name              "attn::_name", "attn::_name_backward"
//   differentiable                   how many of the first arguments have gradients; the backward operator returns these
//   backward_arguments(arguments, results, gradients)
//   differentiable_results           how many of the first results are differentiable, once; 1 unless it is declared. The
//                                    gradient of a result that nothing depends on is undefined
// The gradient of an optional tensor that is not given is ignored; the backward operator may return any tensor for it.
template <class Operator>
class Differentiable : public torch::autograd::Function<Differentiable<Operator>> {
  using Arguments = typename Operator::Arguments;
  using Context = torch::autograd::AutogradContext;
  using Tensors = torch::autograd::variable_list;

  static constexpr int64_t differentiable_results() {
    if constexpr (requires { Operator::differentiable_results; }) return Operator::differentiable_results;
    else return 1;
  }

  template <class T>
  static constexpr bool is_tensor = std::is_same_v<T, at::Tensor> || std::is_same_v<T, std::optional<at::Tensor>>;

 public:
  // `values` are the members of Arguments one by one, because autograd finds the tensors among the parameters of this function.
  template <class... Values>
  static Tensors forward(Context* context, const Values&... values) {
    const at::AutoDispatchBelowADInplaceOrView guard;
    static const auto handle = find_operator(Operator::name);
    Arguments arguments;
    std::apply([&](const auto&... one) { ((arguments.*one.member = values), ...); }, Arguments::list());
    auto results = call_operator(handle, arguments);
    Tensors saved;
    detail::for_each_argument<Arguments>([&](const auto& one) {
      const auto& value = arguments.*one.member;
      using T = std::decay_t<decltype(value)>;
      if constexpr (std::is_same_v<T, at::Tensor>) saved.push_back(value);
      else if constexpr (is_tensor<T>) saved.push_back(value.value_or(at::Tensor()));
      else context->saved_data[one.name] = value;
    });
    saved.insert(saved.end(), results.begin(), results.end());
    context->save_for_backward(saved);
    context->mark_non_differentiable({results.begin() + differentiable_results(), results.end()});
    if (differentiable_results() > 1) context->set_materialize_grads(false);
    return results;
  }

  static Tensors backward(Context* context, const Tensors& gradients) {
    static const auto handle = find_operator(Operator::backward_name);
    const auto saved = context->get_saved_variables();
    auto next = saved.begin();
    Arguments arguments;
    detail::for_each_argument<Arguments>([&](const auto& one) {
      auto& value = arguments.*one.member;
      using T = std::decay_t<decltype(value)>;
      if constexpr (std::is_same_v<T, at::Tensor>) value = *next++;
      else if constexpr (is_tensor<T>) {
        if (next->defined()) value = *next;
        ++next;
      } else value = context->saved_data[one.name].template to<T>();
    });
    auto results = call_operator(handle, Operator::backward_arguments(arguments, Tensors(next, saved.end()), gradients));
    results.resize(detail::argument_count<Arguments>());
    size_t index = 0;
    detail::for_each_argument<Arguments>([&](const auto& one) {
      const auto& value = arguments.*one.member;
      if constexpr (std::is_same_v<std::decay_t<decltype(value)>, std::optional<at::Tensor>>)
        if (!value) results[index] = at::Tensor();
      ++index;
    });
    return results;
  }

  // The kernel for the dispatch key Autograd.
  static Tensors call(const Arguments& arguments) {
    return std::apply([&](const auto&... one) { return Differentiable::apply(arguments.*one.member...); }, Arguments::list());
  }
};

}  // namespace attn
