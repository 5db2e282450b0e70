// Times the parts of the kernels, and prints the time of each beside the time that its multiply-adds take at the rate of the
// chains.
#include "harness/worker/micro/parts.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <string>
#include <vector>

#include "attn/cpu/instruction_set.h"
#include "attn/cpu/rows.h"

namespace attnbench {
namespace {

using attn::cpu::kChunkRows;

constexpr int kRounds = 31;
constexpr double kWindowS = 2e-4;
// Lengths of a head. On most machines its rows then come from the second-level cache, the last-level cache and the memory.
constexpr int64_t kLengths[] = {512, 8192, 65536};

// Memory for PartData with random numbers, and normalizers that keep all results finite.
class PartMemory {
 public:
  PartMemory(int64_t length, int64_t scratch_size) {
    data_.length = length;
    for (auto* rows :
         {&data_.q, &data_.k, &data_.v, &data_.output, &data_.grad_output, &data_.grad_q, &data_.grad_k, &data_.grad_v})
      *rows = numbers(length * kPartDim);
    data_.normalizer = numbers(length);
    data_.grad_normalizer = numbers(length);
    std::fill_n(data_.normalizer, length, 16.0f);
    data_.state = numbers(kPartDim * kPartDim);
    data_.state_vector = numbers(kPartDim);
    data_.value_shift = numbers(kPartDim);
    for (auto* rows : {&data_.rows, &data_.features, &data_.left}) *rows = numbers(kChunkRows * kPartDim);
    data_.scores = numbers(kChunkRows * kChunkRows);
    data_.products = numbers(kPartDim * kPartDim);
    data_.scratch = numbers(scratch_size);
  }
  const PartData& data() const { return data_; }

 private:
  float* numbers(int64_t count) { return tensors_.emplace_back(at::rand({count}) / 16).data_ptr<float>(); }

  std::vector<at::Tensor> tensors_;
  PartData data_{};
};

double seconds_of(void (*run)(const PartData&), const PartData& data, int64_t calls) {
  using Clock = std::chrono::steady_clock;
  const auto begin = Clock::now();
  for (int64_t i = 0; i < calls; ++i) run(data);
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// How many calls fill the time window.
int64_t calls_for_window(void (*run)(const PartData&), const PartData& data) {
  run(data);
  int64_t calls = 1;
  while (seconds_of(run, data, calls) < kWindowS && calls < (int64_t{1} << 24)) calls *= 2;
  return calls;
}

double median(std::vector<double> values) {
  const auto middle = values.begin() + int64_t(values.size()) / 2;
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// The seconds of one chunk, and of one multiply-add of vectors in the chains. Both are timed in turns, because the clock of the
// processor and the load by other programs change.
struct Timed {
  double chunk_s, multiply_add_s;
};
Timed time_part(const Parts& parts, const Part& part, const PartData& data) {
  const auto calls = calls_for_window(part.run, data), chain_calls = calls_for_window(parts.chains, data);
  const double chunks = part.whole_pass ? double(data.length) / kChunkRows : 1;
  std::vector<double> chunk_s, multiply_add_s, ratios;
  for (int round = 0; round < kRounds; ++round) {
    multiply_add_s.push_back(seconds_of(parts.chains, data, chain_calls) / double(chain_calls * parts.chain_length));
    chunk_s.push_back(seconds_of(part.run, data, calls) / double(calls) / chunks);
    ratios.push_back(chunk_s.back() / multiply_add_s.back());
  }
  const double multiply_add = median(multiply_add_s);
  return {median(ratios) * multiply_add, multiply_add};
}

std::string text_of(const char* format, double number) {
  char text[32];
  std::snprintf(text, sizeof(text), format, number);
  return text;
}

void print_row(const Part& part, const std::string& name, const Timed& timed) {
  const double at_rate = double(part.multiply_adds) * timed.multiply_add_s;
  const auto count = [](int64_t number) { return number > 0 ? std::to_string(number) : std::string(); };
  const bool multiplies = part.multiply_adds > 0;
  const std::string cells[] = {name,
                               count(part.multiply_adds),
                               count(part.loads),
                               count(part.stores),
                               multiplies ? text_of("%.0f ns", at_rate * 1e9) : "",
                               text_of("%.0f ns", timed.chunk_s * 1e9),
                               multiplies ? text_of("%.2f", at_rate / timed.chunk_s) : ""};
  for (const auto& cell : cells) std::printf("| %s ", cell.c_str());
  std::printf("|\n");
  std::fflush(stdout);
}

void print_table(const char* set, const Parts& parts) {
  PartMemory memory(kLengths[0], parts.scratch_size);
  const auto rate = time_part(parts, parts.parts[0], memory.data()).multiply_add_s;
  std::printf(
      "A causal chunk of 16 positions, 64 dimensions, float32, %s, one thread. A multiply-add of vectors takes %.3f ns "
      "(%.0f GFLOP/s).\n\n"
      "| part | multiply-adds | loads | stores | at the rate of multiply-adds | measured | share |\n"
      "|---|---:|---:|---:|---:|---:|---:|\n",
      set, rate * 1e9, 2e-9 * double(parts.lanes) / rate);
  for (int64_t i = 0; i < parts.count; ++i) {
    const auto& part = parts.parts[i];
    if (!part.streams) {
      print_row(part, part.name, time_part(parts, part, memory.data()));
      continue;
    }
    for (const auto length : kLengths)
      print_row(part, std::string(part.name) + ", N = " + std::to_string(length),
                time_part(parts, part, PartMemory(length, parts.scratch_size).data()));
  }
  std::printf("\n");
}

}  // namespace

void print_parts() {
  at::set_num_threads(1);
  for (const auto set : attn::cpu::available_instruction_sets()) {
    if (set == attn::cpu::InstructionSet::avx2) print_table("AVX2", parts_avx2());
    if (set == attn::cpu::InstructionSet::avx512) print_table("AVX-512", parts_avx512());
  }
}

}  // namespace attnbench
