// The command line of `attnbench` as data. Each command declares its options once; parsing, error messages, --help and the
// completion scripts are made from these declarations. The parser, CLI11, is included by command_line.cpp alone, because its
// header takes longer to compile than all else that a command includes.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace attnbench {

// What a shell completes a value with, where the option has no choices.
enum class Completion { nothing, files, methods, sweeps };

// What an option says besides its name and its description.
struct OptionTraits {
  std::string short_name = {};            // such as "-q"
  std::string placeholder = {};           // stands for the value in the help, such as "FOLDER"; by default made from the type
  std::string unit = {};                  // of a number, such as "s"
  std::vector<std::string> choices = {};  // the values that are accepted; empty: any
  double min = -std::numeric_limits<double>::infinity();  // of numbers
  double max = std::numeric_limits<double>::infinity();
  std::string default_text = {};  // the default in words, where the initial value of the variable does not say it
  char separator = '\0';          // of an option that takes a list: divides one word into several values
  bool required = false;
  bool hidden = false;  // accepted, but not shown: former names of an option
  Completion completion = Completion::nothing;
  std::string excludes = {}, needs = {};  // names of other options of the command
};

// Where a value that was given goes. The value that the variable has when the option is declared is the default in the help. A
// function is given the text of the value and throws std::invalid_argument, which says what was expected. A bool makes the option
// a flag, as does a function without a parameter.
using OptionTarget =
    std::variant<bool*, std::string*, std::vector<std::string>*, int*, std::uint64_t*, double*, std::optional<double>*,
                 std::vector<int>*, std::function<void(const std::string&)>, std::function<void()>>;

struct Option {
  std::string name;  // "--out", or of a positional argument "file"
  OptionTarget target;
  std::string description;
  OptionTraits traits;
  std::string default_text;  // empty: there is no default

  bool is_positional() const { return !name.starts_with('-'); }
  bool is_flag() const { return std::holds_alternative<bool*>(target) || std::holds_alternative<std::function<void()>>(target); }
  bool is_list() const {
    return std::holds_alternative<std::vector<std::string>*>(target) || std::holds_alternative<std::vector<int>*>(target);
  }
};

class Command {
 public:
  Command(std::string name, std::string description) : name_(std::move(name)), description_(std::move(description)) {}

  // An option "--name", or a positional argument "name"; those are filled in the order of their declarations. What `target`
  // points to must live until the command line is parsed.
  void add(std::string name, OptionTarget target, std::string description, OptionTraits traits = {});
  // A command line that the help shows, without the program's name, and what it does.
  void add_example(std::string_view words, std::string_view meaning);

  const std::string& name() const { return name_; }
  const std::string& description() const { return description_; }
  const std::vector<Option>& options() const { return options_; }
  const std::vector<std::pair<std::string, std::string>>& examples() const { return examples_; }

 private:
  std::string name_, description_;
  std::vector<Option> options_;
  std::vector<std::pair<std::string, std::string>> examples_;
};

// The whole command line: options of the program, which may stand before or after a command, and its commands.
class CommandLine {
 public:
  CommandLine(std::string name, std::string description) : program_(std::move(name), std::move(description)) {}

  Command& program() { return program_; }
  const Command& program() const { return program_; }
  Command& add_command(std::string name, std::string description);
  const std::vector<std::unique_ptr<Command>>& commands() const { return commands_; }

  struct Choice {
    const Command* command = nullptr;  // null: none was given
    bool help = false;                 // --help was given
  };
  // Gives every option of the command line its value. Throws UsageError, which names the option as it is written.
  Choice parse(int argc, const char* const* argv) const;

  // The help of the program (null) or of one of its commands.
  std::string help(const Command* command) const;

 private:
  Command program_;
  std::vector<std::unique_ptr<Command>> commands_;
};

}  // namespace attnbench
