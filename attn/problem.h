// What one attention computation is: its sizes, types and masks. Everything else (inputs, costs, checks) is made from it.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <string>

namespace attn {

// How the number of valid keys of each batch entry is drawn: every key, uniform on 1…key_len, or the same for all.
struct KeyLengthDistribution {
  enum class Kind { full, uniform, fixed };
  Kind kind = Kind::full;
  int64_t length = 0;  // Kind::fixed only

  // "full", "uniform" or a number. Throws c10::ValueError for anything else.
  static KeyLengthDistribution parse(const std::string& text);
  bool is_full() const { return kind == Kind::full; }
};

// Tensors are laid out [batch, heads, length, dim]: q [B,H,N,D], k [B,H,L,D], v [B,H,L,M].
struct Problem {
  int64_t batch = 1;         // B, may be 0
  int64_t heads = 8;         // H
  int64_t query_len = 1024;  // N
  int64_t key_len = 1024;    // L
  int64_t head_dim = 64;     // D
  int64_t value_dim = 64;    // M
  at::ScalarType dtype = at::kFloat;
  c10::DeviceType device = c10::DeviceType::CPU;
  bool causal = false;  // query i sees keys 0…i; needs key_len = query_len
  KeyLengthDistribution key_lengths;

  // Throws c10::ValueError naming the field, its value and what was expected.
  void validate() const;

  double element_bytes() const;
  double query_bytes() const;  // of q, and of its gradient
  double key_bytes() const;
  double value_bytes() const;
  double output_bytes() const;  // [B,H,N,M]
  double input_bytes() const { return query_bytes() + key_bytes() + value_bytes(); }
  // Pairs (query, key) over all batches and heads, hidden ones included.
  double score_count() const { return double(batch) * double(heads) * double(query_len) * double(key_len); }
};

enum class Protocol {
  forward,           // the output alone, no gradients recorded
  forward_backward,  // the output and the gradients of q, k and v
  prefill,           // query_len tokens into a fresh decoding state, with their outputs
  decode             // one token after query_len others
};

// Names as in sweep files and records: "float32", "forward_backward". Unknown names throw c10::ValueError and list the known.
at::ScalarType parse_dtype(const std::string& name);
std::string dtype_name(at::ScalarType dtype);
Protocol parse_protocol(const std::string& name);
std::string protocol_name(Protocol protocol);

}  // namespace attn
