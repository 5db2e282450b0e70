// Times the steps of a decoder beside the limits of the machine, for the hidden command `attnbench-experiments decode-speed`.
#pragma once

#include "harness/schema/json.h"

namespace experiments {

// The request has
//   method     as attn::make_method() takes it, without the option seed
//   layers     of the model image_model(layers, method)
//   batch      number of sequences
//   tokens     number of timed steps at each position and repetition
//   threads    of LibTorch
//   positions  list: how many tokens the sequences have before the timed steps
//   kernel     optional: DecoderOptions::kernel, "auto" by default
//   repetitions  optional: 3 by default
//
// Each repetition measures the ceilings of the machine and then, at each position, the steps of the decoder and those of a
// decoder that runs the model's modules, in turns. The answer has for each position and each of the two the median and the
// quartiles of the seconds of a step, over all repetitions, and for the first one
//   ratio_to_reading    the median divided by the time of reading all parameters once at read_gb_s
//   ratio_to_cached     the same for cached_read_gb_s
//   multiply_add_share  the multiply-adds of the products with weights (not those of the attention) in the median time, divided
//                       by multiply_add_gflop_s, where a multiply-add counts as two operations
// and once for all positions
//   parameter_bytes
//   read_gb_s             the streaming read bandwidth of the memory (harness/worker/cpu/ceilings.h)
//   cached_read_gb_s      that of an array as large as the parameters, which the last-level cache may hold
//   multiply_add_gflop_s  multiply-adds in registers
//   sampling_s            drawing one byte of each sequence from the outputs
// as medians over the repetitions. Throws Json::exception for a request that lacks a field, and c10::ValueError as
// make_decoder().
attnbench::Json decode_speed(const attnbench::Json& request);

}  // namespace experiments
