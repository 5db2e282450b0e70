// A plug-in that does what the environment variable ATTNBENCH_FAULTY_PLUGIN says when it is loaded:
//   register NAME     registers a method of this name, whose calls fail
//   throw             throws an exception in an initialiser
//   crash             aborts
//   crash in COMMAND  aborts if the worker runs this command, and otherwise registers the method "faulty"
// Otherwise it registers nothing.
#include <cstdlib>
#include <fstream>
#include <iterator>
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
  return std::nullopt;
}

const auto registered = obey(asked());

}  // namespace

ATTNBENCH_PLUGIN;
