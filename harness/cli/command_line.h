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

#include "harness/text/errors.h"

namespace attnbench {

// What a shell offers as the value of an option that has no choices.
enum class Completion { nothing, files, methods, sweeps, trainings, commands };

// What is declared of an option besides its name, its target and its description.
struct OptionTraits {
  std::string short_name = {};            // such as "-q"
  std::string placeholder = {};           // stands for the value in the help, such as "FOLDER"; by default made from the type
  std::string unit = {};                  // of a number, such as "s"
  std::vector<std::string> choices = {};  // the accepted values; empty: any value
  bool takes_others = false;              // whether the command itself checks values that are none of the choices
  double min = -std::numeric_limits<double>::infinity();  // of a number
  double max = std::numeric_limits<double>::infinity();   // of a number; the help shows it only together with min
  std::string default_text = {};  // the default in words, if the initial value of the target does not say it
  char separator = '\0';          // of a list: the character that divides one word of the command line into several values
  bool required = false;
  bool hidden = false;  // accepted, but not shown, such as a hook for tests
  Completion completion = Completion::nothing;
  std::string excludes = {};  // name of an option that cannot be given together with this one
  std::string needs = {};     // name of an option without which this one cannot be given
};

// Where the value that the user gives is stored. The value that a variable has when the option is declared is shown as the
// default. A function is called with the text of the value; it throws std::invalid_argument, which says what was expected. A
// bool, or a function without a parameter, makes the option a flag.
using OptionTarget =
    std::variant<bool*, std::string*, std::vector<std::string>*, int*, std::uint64_t*, double*, std::optional<double>*,
                 std::vector<int>*, std::function<void(const std::string&)>, std::function<void()>>;

struct Option {
  std::string name;  // such as "--out", or "file" for a positional argument
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

  // Adds an option "--name" or a positional argument "name". Positional arguments are filled in the order in which they are
  // added. What `target` points to must live until the command line is parsed.
  void add(std::string name, OptionTarget target, std::string description, OptionTraits traits = {});
  // Adds an example to the help: a command line without the program's name, and what it does.
  void add_example(std::string_view words, std::string_view meaning);

  const std::string& name() const { return name_; }
  const std::string& description() const { return description_; }
  const std::vector<Option>& options() const { return options_; }
  // Appends the names, such as "--count", of the options that the help shows.
  void append_shown_names(std::vector<std::string>& names) const;
  const std::vector<std::pair<std::string, std::string>>& examples() const { return examples_; }

 private:
  std::string name_, description_;
  std::vector<Option> options_;
  std::vector<std::pair<std::string, std::string>> examples_;
};

// The whole command line: the commands, and the options of the program, which may stand before or after the command.
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
  // Stores the value of every option that was given. Throws UsageError for a wrong command line; the message names the option as
  // the user writes it.
  Choice parse(int argc, const char* const* argv) const;

  // The command of this name. Throws UsageError that suggests the nearest one if there is none.
  const Command& find_command(const std::string& name) const;
  // The help of one of the commands or, if `command` is null, of the program.
  std::string help(const Command* command) const;

 private:
  UsageError unknown_command(const std::string& name) const;

  Command program_;
  std::vector<std::unique_ptr<Command>> commands_;
};

}  // namespace attnbench
