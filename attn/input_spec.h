// InputSpec, the declaration of an input tensor of attention methods, and kInputs, the table of all of them. Checks, drawing,
// files, gradients, comparison with the reference and the keyword arguments of Python functions are derived from it.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "attn/inputs.h"
#include "attn/problem.h"

namespace attn {

// How the entries of a tensor are drawn.
enum class InputDraw {
  normal,         // standard normal, or as the distribution of the inputs says
  log_decay,      // log(1/(1 + e^-x)) of a standard normal x, scaled so that what was read a given number of positions before
                  // counts 1/e on average: below 0
  unit_interval,  // 1/(1 + e^-x) of a standard normal x: between 0 and 1
  first_of_keys   // a view of the first entries of k
};

// What is known of an input tensor of methods.
struct InputSpec {
  const char* name;  // in messages, in files of inputs, and as a parameter of Python functions
  at::Tensor Inputs::*member;
  // A letter for each axis: B batch; H, G, W and U heads of queries, keys, values and the output; N queries, L keys, D head_dim,
  // M value_dim. One axis is that of heads, and the batch comes before it, if there is one.
  const char* shape;
  // Whether the dtype is the accumulator dtype (float64 for float64, otherwise float32), and not that of q.
  bool accumulates = false;
  bool required = true;  // whether a method that reads the tensor needs it
  bool differentiable = true;
  InputDraw draw = InputDraw::normal;

  // The axis of the positions, or -1.
  int64_t position_axis() const;
  int64_t head_axis() const;
  bool has_batch() const { return shape[0] == 'B'; }
  // Whether calls of this problem have the tensor, if the method reads it. Only sinks are not in every call.
  bool is_part_of(const Problem& problem) const { return member != &Inputs::sinks || problem.sinks; }
  // The sizes of the tensor, and its dtype, in a call of this problem.
  std::vector<int64_t> sizes(const Problem& problem) const;
  at::ScalarType dtype(at::ScalarType of_query) const;
  double bytes(const Problem& problem) const;
};

// The size of the axis with this letter in a problem, and the name of the problem's field.
int64_t size_of_axis(char letter, const Problem& problem);
const char* field_of_axis(char letter);

inline constexpr InputSpec kInputs[] = {
    {"q", &Inputs::q, "BHND"},
    {"k", &Inputs::k, "BGLD"},
    {"v", &Inputs::v, "BWLM"},
    {"g", &Inputs::g, "BWL", /*accumulates=*/true, /*required=*/false, /*differentiable=*/true, InputDraw::log_decay},
    {"beta", &Inputs::beta, "BWL", /*accumulates=*/true, /*required=*/false, /*differentiable=*/true, InputDraw::unit_interval},
    {"sinks", &Inputs::sinks, "U", /*accumulates=*/true, /*required=*/false},
};

// The row of kInputs with this name. Throws c10::ValueError for an unknown name and lists the known ones.
const InputSpec& find_input(const std::string& name);

// q, k and v, which most methods read. A method may read q and v alone.
const std::vector<InputSpec>& query_key_value();

// Throws c10::ValueError if a required tensor is undefined, or if dtypes, devices or sizes disagree. The message names the
// tensor, its value and what was expected.
void check_inputs(const Inputs& inputs, const std::vector<InputSpec>& specs);

// The problem that describes these inputs, which are checked as check_inputs() does, and the mask. Key lengths are described as
// uniformly distributed. `specs` holds q and v; without keys there are as many of them as of values.
Problem problem_of(const Inputs& inputs, const std::vector<InputSpec>& specs = query_key_value());

}  // namespace attn
