// Collects the methods that register themselves, and makes one from its text.
#include "attn/registry.h"

#include <c10/util/Exception.h>

#include <map>
#include <utility>

#include "attn/former_options.h"
#include "attn/refusal.h"

namespace attn {
namespace {

std::map<std::string, MethodEntry>& entries() {
  static std::map<std::string, MethodEntry> all;
  return all;
}

// Where methods that register themselves are put in place of the registry; null if there is no such place. A static local
// variable, because initialisers of other files use it.
std::vector<MethodEntry>*& collected() {
  static std::vector<MethodEntry>* methods = nullptr;
  return methods;
}

}  // namespace

RegisterMethod::RegisterMethod(MethodEntry entry) {
  if (auto* const methods = collected()) methods->push_back(std::move(entry));
  else add_method(std::move(entry));
}

void add_method(MethodEntry entry) {
  const auto name = entry.name;
  TORCH_CHECK_VALUE(entries().emplace(name, std::move(entry)).second, "method '", name, "' is registered twice");
}

std::vector<MethodEntry> methods_registered_by(const std::function<void()>& load) {
  std::vector<MethodEntry> methods;
  auto* const before = std::exchange(collected(), &methods);
  try {
    load();
  } catch (...) {
    collected() = before;
    throw;
  }
  collected() = before;
  return methods;
}

std::vector<const MethodEntry*> methods() {
  std::vector<const MethodEntry*> all;
  for (const auto& [name, entry] : entries()) all.push_back(&entry);
  return all;
}

const MethodEntry& find_method(const std::string& name) {
  const auto found = entries().find(name);
  if (found != entries().end()) return found->second;
  std::string known;
  for (const auto& [other, entry] : entries()) known += (known.empty() ? "" : ", ") + other;
  throw Refusal(Refusal::Kind::unknown, "method", "unknown method '" + name + "'; known: " + known);
}

std::shared_ptr<AttentionMethod> make_method(const std::string& text) {
  const auto spec = MethodSpec::parse(text);
  const auto& entry = find_method(spec.name);
  auto method = entry.factory(Options(entry.name, entry.options, spec.options));
  method->set_label(with_current_options(text));
  return method;
}

}  // namespace attn
