// Problem, which describes one attention computation: its sizes, dtype, device and mask. Inputs are drawn from it, and methods
// predict their cost from it.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "attn/pattern.h"

namespace attn {

// How the number of valid keys of each batch entry is drawn: all keys, a number uniform on 1 … key_len, or one fixed number.
struct KeyLengthDistribution {
  enum class Kind { full, uniform, fixed };
  Kind kind = Kind::full;
  int64_t length = 0;  // for Kind::fixed

  // "full", "uniform" or a number. Throws c10::ValueError for anything else.
  static KeyLengthDistribution parse(const std::string& text);
  bool is_full() const { return kind == Kind::full; }
};

// How the positions of each batch entry are divided into packed sequences: sequences that follow each other and do not see each
// other. Every batch entry is divided in the same way. The texts, in sweep files and records:
//
//   none                one sequence
//   uniform:S           S sequences, whose borders are drawn uniformly from the places between two positions
//   lengths:64,192,44   sequences of these lengths, which must add up to query_len
struct PackedSequences {
  int64_t drawn = 0;             // S
  std::vector<int64_t> lengths;  // of a list

  // Throws c10::ValueError for text of another form.
  static PackedSequences parse(const std::string& text);
  std::string text() const;

  bool is_none() const { return drawn == 0 && lengths.empty(); }
  // The number of sequences.
  int64_t count() const { return lengths.empty() ? std::max<int64_t>(drawn, 1) : int64_t(lengths.size()); }
  // The lengths of a list, or the expected ones of drawn sequences, sorted, which add up to query_len.
  std::vector<int64_t> expected_lengths(int64_t query_len) const;
};

// Tensors are laid out [batch, heads, length, dim]: q [B,H,N,D], k [B,G,L,D], v [B,W,L,M], output [B,U,N,M], where U is the
// largest of H, G and W, and each of these divides U. Head u of the output has the query head u / (U/H), the key head u / (U/G)
// and the value head u / (U/W), rounded down: neighbouring heads share keys and values.
struct Problem {
  int64_t batch = 1;         // B; 0 is allowed
  int64_t heads = 8;         // H
  int64_t kv_heads = 0;      // G; 0 for H
  int64_t value_heads = 0;   // W; 0 for G
  int64_t query_len = 1024;  // N
  int64_t key_len = 1024;    // L
  int64_t head_dim = 64;     // D
  int64_t value_dim = 64;    // M
  at::ScalarType dtype = at::kFloat;
  c10::DeviceType device = c10::DeviceType::CPU;
  bool causal = false;  // query i sees keys 0 … i + key_len − query_len
  KeyLengthDistribution key_lengths;
  Pattern pattern;         // which keys a query sees by its distance from them
  PackedSequences packed;  // other than `none`, needs key_len = query_len and full key lengths
  bool sinks = false;      // whether each head of the output has a sink: a score that only the denominator of the softmax sees

  // Throws c10::ValueError for an invalid field; the message names the field, its value and what was expected.
  void validate() const;

  int64_t key_head_count() const { return kv_heads == 0 ? heads : kv_heads; }                     // G
  int64_t value_head_count() const { return value_heads == 0 ? key_head_count() : value_heads; }  // W
  int64_t output_head_count() const;                                                              // U
  // How many groups of heads there are that share no head of q, k or v with each other.
  int64_t head_groups() const;
  // The same problem with as many heads of queries, keys and values as the output has.
  Problem with_all_heads() const;
  // Whether some heads share those of q, k or v.
  bool heads_are_shared() const { return key_head_count() != heads || value_head_count() != heads; }

  double element_bytes() const;
  // The sizes in bytes of q, k, v and the output, which are also the sizes of their gradients.
  double query_bytes() const;
  double key_bytes() const;
  double value_bytes() const;
  double output_bytes() const;
  double sink_bytes() const;
  double input_bytes() const { return query_bytes() + key_bytes() + value_bytes() + sink_bytes(); }
  // The number of pairs (query, key) over all batch entries and heads, including those that the mask hides.
  double score_count() const { return double(batch) * double(output_head_count()) * double(query_len) * double(key_len); }
};

// The measuring protocols: what one timed call of a method does.
enum class Protocol {
  forward,           // computes the output without recording gradients
  forward_backward,  // computes the output and the gradients of the inputs
  prefill,           // adds query_len tokens to a new decoding state and computes their outputs
  decode             // adds one token to a decoding state that holds query_len tokens, and computes its output
};

// The names in sweep files and records, such as "float32" and "forward_backward". The parsers throw c10::ValueError for an
// unknown name and list the known ones.
at::ScalarType parse_dtype(const std::string& name);
std::string dtype_name(at::ScalarType dtype);
Protocol parse_protocol(const std::string& name);
std::string protocol_name(Protocol protocol);

}  // namespace attn
