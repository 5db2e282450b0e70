// A plug-in that does what the environment variable ATTNBENCH_FAULTY_PLUGIN says when it is loaded:
//   register NAME     registers a method of this name, whose calls fail
//   throw             throws an exception in an initialiser
//   crash             aborts
//   crash in COMMAND  aborts if the worker runs this command, and otherwise registers the method "faulty"
//   wrong from N      registers the method "faulty", whose results are wrong for N keys and more
//   hang from N       registers the method "faulty", whose calls never return for N keys and more
// Otherwise it registers nothing.
#include <ATen/ATen.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>

#include "attn/plugin.h"
#include "attn/reference.h"
#include "attn/registry.h"

namespace {

class Faulty : public attn::AttentionMethod {
 public:
  attn::Cost cost(const attn::Problem&, attn::Protocol) const override { return {1, 1, 1}; }
  at::Tensor reference(const attn::Inputs& inputs, const at::Tensor& rows) const override {
    return attn::reference::softmax(inputs, rows);
  }

 protected:
  at::Tensor attend(const attn::Inputs&) override { throw std::runtime_error("a faulty method"); }
};

class FaultyFrom final : public Faulty {
 public:
  FaultyFrom(bool hangs, int64_t length) : hangs_(hangs), length_(length) {}
  attn::Capabilities capabilities() const override {
    attn::Capabilities can;
    can.key_lengths = false;
    can.dtypes = {at::kFloat};
    return can;
  }

 protected:
  at::Tensor attend(const attn::Inputs& inputs) override {
    const bool is_faulty = inputs.k.size(2) >= length_;
    while (is_faulty && hangs_) pause();
    auto scores = inputs.q.matmul(inputs.k.transpose(2, 3)) / std::sqrt(double(inputs.q.size(3)));
    if (inputs.mask.causal) scores = scores.masked_fill(at::ones_like(scores, at::kBool).triu(1), -INFINITY);
    return scores.softmax(-1).matmul(inputs.v) * (is_faulty ? 2 : 1);
  }

 private:
  bool hangs_;
  int64_t length_;
};

std::string asked() {
  const char* const text = std::getenv("ATTNBENCH_FAULTY_PLUGIN");
  return text ? text : "";
}

// Whether the worker was started with this command.
bool runs(const std::string& command) {
  std::ifstream file("/proc/self/cmdline");
  const std::string words{std::istreambuf_iterator<char>(file), {}};
  return words.find('\0' + command + '\0') != std::string::npos;
}

std::optional<attn::RegisterMethod> obey(const std::string& what) {
  const std::string named = "register ", in = "crash in ";
  if (what == "throw") throw std::runtime_error("no licence");
  if (what == "crash" || (what.starts_with(in) && runs(what.substr(in.size())))) std::abort();
  if (what.starts_with(named)) return attn::RegisterMethod(attn::entry_of<Faulty>(what.substr(named.size()), "fails", "", ""));
  if (what.starts_with(in)) return attn::RegisterMethod(attn::entry_of<Faulty>("faulty", "fails", "", ""));
  for (const std::string kind : {"wrong from ", "hang from "})
    if (what.starts_with(kind)) {
      auto entry = attn::entry_of<Faulty>("faulty", "is wrong or hangs from a length on", "O(N²)", "O(N²)");
      entry.factory = [hangs = kind == "hang from ", length = std::stoll(what.substr(kind.size()))](const attn::Options&) {
        return std::make_shared<FaultyFrom>(hangs, int64_t(length));
      };
      return attn::RegisterMethod(std::move(entry));
    }
  return std::nullopt;
}

const auto registered = obey(asked());

}  // namespace

ATTNBENCH_PLUGIN;
