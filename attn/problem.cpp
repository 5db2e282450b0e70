// The checks and the sizes of a problem, and the names of dtypes and protocols.
#include "attn/problem.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>
#include <numeric>
#include <utility>

#include "attn/refusal.h"

namespace attn {
namespace {

constexpr std::array<std::pair<const char*, at::ScalarType>, 4> kDtypes{{
    {"float32", at::kFloat},
    {"float64", at::kDouble},
    {"bfloat16", at::kBFloat16},
    {"float16", at::kHalf},
}};

constexpr std::array<std::pair<const char*, Protocol>, 4> kProtocols{{
    {"forward", Protocol::forward},
    {"forward_backward", Protocol::forward_backward},
    {"prefill", Protocol::prefill},
    {"decode", Protocol::decode},
}};

template <class... Parts>
void check_field(bool is_right, const char* field, const Parts&... parts) {
  if (!is_right) throw Refusal(Refusal::Kind::wrong, field, c10::str(parts...));
}

void check_min(const char* field, int64_t value, int64_t min) {
  check_field(value >= min, field, "problem: ", field, " = ", value, ", expected at least ", min);
}

}  // namespace

KeyLengthDistribution KeyLengthDistribution::parse(const std::string& text) {
  if (text == "full") return {Kind::full, 0};
  if (text == "uniform") return {Kind::uniform, 0};
  int64_t length = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), length);
  check_field(error == std::errc{} && end == text.data() + text.size() && length >= 0, "key_lengths", "key_lengths = '", text,
              "', expected 'full', 'uniform' or a number of keys");
  return {Kind::fixed, length};
}

PackedSequences PackedSequences::parse(const std::string& text) {
  if (text == "none") return {};
  const auto check = [&](bool is_right) {
    check_field(is_right, "packed", "packed = '", text,
                "', expected 'none', 'uniform:S' with a number of sequences, or 'lengths:' and their lengths, such as "
                "'lengths:64,192'");
  };
  const auto colon = text.find(':');
  const auto kind = text.substr(0, colon);
  check(colon != std::string::npos && (kind == "uniform" || kind == "lengths"));
  PackedSequences packed;
  const auto* const end = text.data() + text.size();
  for (const auto* begin = text.data() + colon + 1;; ++begin) {
    int64_t number = 0;
    const auto [next, error] = std::from_chars(begin, end, number);
    check(error == std::errc{} && number >= 1 && (next == end || (*next == ',' && kind == "lengths")));
    if (kind == "uniform") packed.drawn = number;
    else packed.lengths.push_back(number);
    if (next == end) return packed;
    begin = next;
  }
}

std::string PackedSequences::text() const {
  if (is_none()) return "none";
  if (lengths.empty()) return "uniform:" + std::to_string(drawn);
  std::string all;
  for (const auto length : lengths) all += (all.empty() ? "lengths:" : ",") + std::to_string(length);
  return all;
}

std::vector<int64_t> PackedSequences::expected_lengths(int64_t query_len) const {
  if (!lengths.empty()) return lengths;
  // The k-th smallest of S parts of 1 that are divided at uniform places is Σ_{i<k} 1/(S − i) / S long on average.
  std::vector<int64_t> all;
  double border = 0, expected = 0;
  int64_t begin = 0;
  for (int64_t k = 0; k < count(); ++k) {
    expected += 1 / double(count() - k);
    border += expected / double(count());
    const auto end = k + 1 == count() ? query_len : int64_t(border * double(query_len));
    all.push_back(end - begin);
    begin = end;
  }
  return all;
}

void Problem::validate() const {
  check_min("batch", batch, 0);
  check_min("heads", heads, 1);
  check_min("kv_heads", kv_heads, 0);
  check_min("value_heads", value_heads, 0);
  const auto output_heads = output_head_count();
  for (const auto& [field, count] :
       {std::pair{"heads", heads}, {"kv_heads", key_head_count()}, {"value_heads", value_head_count()}})
    check_field(count == output_heads || output_heads % count == 0, field, "problem: ", field, " = ", count,
                ", expected a divisor of ", output_heads, ", the largest of heads, kv_heads and value_heads");
  check_min("query_len", query_len, 1);
  check_min("key_len", key_len, 1);
  check_min("head_dim", head_dim, 1);
  check_min("value_dim", value_dim, 1);
  check_field(key_lengths.kind != KeyLengthDistribution::Kind::fixed || key_lengths.length <= key_len, "key_lengths",
              "problem: key_lengths = ", key_lengths.length, " is beyond key_len = ", key_len);
  if (!packed.is_none()) {
    const auto text = packed.text();
    check_field(key_len == query_len, "packed", "problem: packed = ", text, " needs key_len = query_len");
    check_field(key_lengths.is_full(), "packed", "problem: packed = ", text, " does not go with key lengths");
    const auto sum = std::accumulate(packed.lengths.begin(), packed.lengths.end(), int64_t{0});
    check_field(packed.lengths.empty() || sum == query_len, "packed", "problem: packed = ", text, " has lengths that add up to ",
                sum, ", expected query_len = ", query_len);
    check_field(packed.drawn <= query_len, "packed", "problem: packed = ", text,
                " has more sequences than query_len = ", query_len, " has positions");
  }
  const double max = double(std::numeric_limits<int64_t>::max()) / 64;
  check_field(query_bytes() < max && key_bytes() < max && value_bytes() < max && output_bytes() < max, "",
              "problem: its tensors have more bytes than 64-bit sizes can count");
}

int64_t Problem::output_head_count() const { return std::max({heads, key_head_count(), value_head_count()}); }
int64_t Problem::head_groups() const { return std::gcd(std::gcd(heads, key_head_count()), value_head_count()); }

Problem Problem::with_all_heads() const {
  auto all = *this;
  all.heads = all.kv_heads = all.value_heads = output_head_count();
  return all;
}

double Problem::element_bytes() const { return double(c10::elementSize(dtype)); }

double Problem::query_bytes() const {
  return double(batch) * double(heads) * double(query_len) * double(head_dim) * element_bytes();
}
double Problem::key_bytes() const {
  return double(batch) * double(key_head_count()) * double(key_len) * double(head_dim) * element_bytes();
}
double Problem::value_bytes() const {
  return double(batch) * double(value_head_count()) * double(key_len) * double(value_dim) * element_bytes();
}
double Problem::output_bytes() const {
  return double(batch) * double(output_head_count()) * double(query_len) * double(value_dim) * element_bytes();
}

double Problem::sink_bytes() const {
  return sinks ? double(output_head_count()) * double(c10::elementSize(dtype == at::kDouble ? at::kDouble : at::kFloat)) : 0;
}

at::ScalarType parse_dtype(const std::string& name) {
  for (const auto& [known, dtype] : kDtypes)
    if (name == known) return dtype;
  TORCH_CHECK_VALUE(false, "dtype = '", name, "', expected float32, float64, bfloat16 or float16");
}

std::string dtype_name(at::ScalarType dtype) {
  for (const auto& [known, type] : kDtypes)
    if (type == dtype) return known;
  return c10::toString(dtype);
}

Protocol parse_protocol(const std::string& name) {
  for (const auto& [known, protocol] : kProtocols)
    if (name == known) return protocol;
  TORCH_CHECK_VALUE(false, "protocol = '", name, "', expected forward, forward_backward, prefill or decode");
}

std::string protocol_name(Protocol protocol) { return kProtocols.at(size_t(protocol)).first; }

}  // namespace attn
