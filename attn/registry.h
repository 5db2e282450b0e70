// The registry of attention methods. A method registers itself at the bottom of its own file:
//
//   const attn::RegisterMethod registered{attn::entry_of<Softmax>("softmax", "…", "O(N²)", "O(N²)")};
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "attn/method.h"
#include "attn/options.h"

namespace attn {

struct MethodEntry {
  std::string name;
  std::string description;   // one line
  std::string time_order;    // in the sequence length: "O(N)", "O(N log N)", "O(N²)"
  std::string memory_order;  // of the memory beside the inputs, in the same notation
  std::vector<OptionSpec> options;
  std::function<std::shared_ptr<AttentionMethod>(const Options&)> factory;
};

// All methods, sorted by name.
std::vector<const MethodEntry*> methods();

// The entry of this name. Throws c10::ValueError for an unknown name; the message lists the known ones.
const MethodEntry& find_method(const std::string& name);

// Makes the method that a text such as "linear" or "linear-chunked:chunk=256" names. Throws c10::ValueError for unknown names and
// bad values of options.
std::shared_ptr<AttentionMethod> make_method(const std::string& spec);

// Registers a method when it is constructed.
struct RegisterMethod {
  // Throws c10::ValueError if the name is already registered.
  explicit RegisterMethod(MethodEntry entry);
};

// Adds a method to the registry. Throws c10::ValueError if the name is already registered.
void add_method(MethodEntry entry);

// Calls `load`, which loads a library, and returns the methods that register themselves meanwhile, in their order. They are not
// added to the registry, and none of them is refused, because an exception must not leave an initialiser of the library. Throws
// what `load` throws.
std::vector<MethodEntry> methods_registered_by(const std::function<void()>& load);

// An entry whose factory calls Method(Options) or, for methods without options, Method().
template <class Method>
MethodEntry entry_of(std::string name, std::string description, std::string time_order, std::string memory_order,
                     std::vector<OptionSpec> options = {}) {
  return {std::move(name),
          std::move(description),
          std::move(time_order),
          std::move(memory_order),
          std::move(options),
          [](const Options& values) -> std::shared_ptr<AttentionMethod> {
            if constexpr (std::is_constructible_v<Method, const Options&>) {
              return std::make_shared<Method>(values);
            } else {
              return std::make_shared<Method>();
            }
          }};
}

}  // namespace attn
