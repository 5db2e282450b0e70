// Parses a command line with CLI11 by the declared options, and writes the help and the messages about wrong values.
#include "harness/cli/command_line.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <set>
#include <stdexcept>
#include <string_view>

#include "harness/schema/field.h"
#include "harness/text/errors.h"
#include "harness/text/nearest.h"
#include "harness/text/units.h"

namespace attnbench {
namespace {

constexpr size_t kDescriptionColumn = 28;
constexpr size_t kHelpWidth = 100;

// ---------------------------------------------------------------- values

[[noreturn]] void refuse(const Option& option, const std::string& text, const std::string& expected) {
  throw UsageError(fmt::format("{} = '{}', expected {}", option.name, text, expected));
}

std::string short_number(double number) { return fmt::format("{:g}", number); }

// The range of a number for the help: "at least 1" or "0 to 1"; empty if there is no min.
std::string range_of(const OptionTraits& traits) {
  if (!std::isfinite(traits.min)) return "";
  return std::isfinite(traits.max) ? short_number(traits.min) + " to " + short_number(traits.max)
                                   : "at least " + short_number(traits.min);
}

template <typename Number>
Number parse_number(const Option& option, const std::string& text) {
  Number number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool valid = error == std::errc{} && end == text.data() + text.size() && std::isfinite(double(number));
  if (!valid || double(number) < option.traits.min || double(number) > option.traits.max) {
    const auto range = range_of(option.traits);
    const std::string preposition = range.empty() ? "" : std::isfinite(option.traits.max) ? " from " : " of ";
    refuse(option, text, (std::is_integral_v<Number> ? "a whole number" : "a number") + preposition + range);
  }
  return number;
}

void check_choice(const Option& option, const std::string& text) {
  const auto& choices = option.traits.choices;
  if (choices.empty() || option.traits.takes_others ||
      std::any_of(choices.begin(), choices.end(), [&](const auto& c) { return matches(c, text); }))
    return;
  refuse(option, text, fmt::format("one of {}", fmt::join(choices, ", ")));
}

// Stores one value that was given. The first value of a list replaces the default of the list.
void store(const Option& option, const std::string& text, bool first) {
  check_choice(option, text);
  const auto append = [first](auto& list, auto value) {
    if (first) list.clear();
    list.push_back(std::move(value));
  };
  if (const auto* to = std::get_if<std::string*>(&option.target)) **to = text;
  else if (const auto* texts = std::get_if<std::vector<std::string>*>(&option.target)) append(**texts, text);
  else if (const auto* whole = std::get_if<int*>(&option.target)) **whole = parse_number<int>(option, text);
  else if (const auto* large = std::get_if<std::uint64_t*>(&option.target)) **large = parse_number<std::uint64_t>(option, text);
  else if (const auto* number = std::get_if<double*>(&option.target)) **number = parse_number<double>(option, text);
  else if (const auto* maybe = std::get_if<std::optional<double>*>(&option.target)) **maybe = parse_number<double>(option, text);
  else if (const auto* numbers = std::get_if<std::vector<int>*>(&option.target))
    append(**numbers, parse_number<int>(option, text));
  else if (const auto* take = std::get_if<std::function<void(const std::string&)>>(&option.target)) {
    try {
      (*take)(text);
    } catch (const std::invalid_argument& error) {
      throw UsageError(fmt::format("{}: {}", option.name, error.what()));
    }
  }
}

void store_all(const Option& option, const std::vector<std::string>& words) {
  if (!option.is_list() && words.size() > 1) throw UsageError(option.name + " is given more than once");
  bool first = true;
  for (const auto& word : words)
    for (size_t begin = 0; begin <= word.size();) {
      const auto end =
          option.traits.separator == '\0' ? word.size() : std::min(word.find(option.traits.separator, begin), word.size());
      store(option, word.substr(begin, end - begin), first);
      first = false;
      begin = end + 1;
    }
}

std::string default_of(const Option& option) {
  if (!option.traits.default_text.empty() || option.traits.required) return option.traits.default_text;
  const auto separator = std::string(1, option.traits.separator == '\0' ? ' ' : option.traits.separator);
  if (const auto* text = std::get_if<std::string*>(&option.target)) return **text;
  if (const auto* texts = std::get_if<std::vector<std::string>*>(&option.target))
    return fmt::format("{}", fmt::join(**texts, separator));
  if (const auto* whole = std::get_if<int*>(&option.target)) return std::to_string(**whole);
  if (const auto* large = std::get_if<std::uint64_t*>(&option.target)) return std::to_string(**large);
  if (const auto* number = std::get_if<double*>(&option.target)) return short_number(**number);
  if (const auto* maybe = std::get_if<std::optional<double>*>(&option.target)) return *maybe ? short_number(***maybe) : "";
  if (const auto* numbers = std::get_if<std::vector<int>*>(&option.target))
    return fmt::format("{}", fmt::join(**numbers, separator));
  return "";
}

// ---------------------------------------------------------------- parsing

using Given = std::set<const Option*>;

void set_up(CLI::App& app, const Command& command, Given& given) {
  for (const auto& option : command.options()) {
    const auto names = option.traits.short_name.empty() ? option.name : option.traits.short_name + "," + option.name;
    if (option.is_flag()) {
      app.add_flag_function(names, [&option, &given](std::int64_t count) {
        if (const auto* flag = std::get_if<bool*>(&option.target)) **flag = count > 0;
        else if (count > 0) std::get<std::function<void()>>(option.target)();
        given.insert(&option);
      });
      continue;
    }
    const auto take = [&option, &given](const CLI::results_t& words) {
      given.insert(&option);
      store_all(option, words);
      return true;
    };
    auto* const added = app.add_option(names, CLI::callback_t(take));
    added->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
    if (option.is_positional() && option.is_list()) added->expected(CLI::detail::expected_max_vector_size);
    else added->expected(1)->allow_extra_args(false);
  }
}

const Option* find_option(const Command& command, std::string_view name) {
  for (const auto& option : command.options())
    if (option.name == name) return &option;
  return nullptr;
}

void check_given(const std::string& program, const Command& command, const Given& given) {
  const auto has = [&](const std::string& name) { return given.contains(find_option(command, name)); };
  for (const auto& option : command.options()) {
    const auto& traits = option.traits;
    if (traits.required && !given.contains(&option))
      throw UsageError(fmt::format("{0} needs {1}; `{2} {0} --help` explains it", command.name(),
                                   option.is_positional() ? fmt::format("the argument '{}'", option.name) : option.name,
                                   program));
    if (!given.contains(&option)) continue;
    if (!traits.excludes.empty() && has(traits.excludes))
      throw UsageError(fmt::format("{} cannot be given with {}", option.name, traits.excludes));
    if (!traits.needs.empty() && !has(traits.needs))
      throw UsageError(fmt::format("{} can only be given with {}", option.name, traits.needs));
  }
}

// ---------------------------------------------------------------- help

// Makes a sentence of a description: "list the methods" becomes "List the methods."
std::string sentence(std::string text) {
  if (!text.empty()) text[0] = char(std::toupper(static_cast<unsigned char>(text[0])));
  return text + ".";
}

// One entry of a list in the help: the name of a command or an option on the left, its description on the right.
std::string entry(const std::string& left, const std::string& right) {
  auto text = "  " + left;
  const auto width = display_width(text);
  if (width + 2 > kDescriptionColumn) text += "\n" + std::string(kDescriptionColumn, ' ');
  else text += std::string(kDescriptionColumn - width, ' ');
  return text + wrapped(right, kHelpWidth, kDescriptionColumn) + "\n";
}

std::string placeholder_of(const Option& option) {
  if (!option.traits.choices.empty()) return fmt::format("{}", fmt::join(option.traits.choices, "|"));
  if (!option.traits.placeholder.empty()) return option.traits.placeholder;
  const bool whole = std::holds_alternative<int*>(option.target) || std::holds_alternative<std::uint64_t*>(option.target) ||
                     std::holds_alternative<std::vector<int>*>(option.target);
  const bool number =
      std::holds_alternative<double*>(option.target) || std::holds_alternative<std::optional<double>*>(option.target);
  return whole ? "N" : number ? "NUMBER" : "VALUE";
}

std::string left_of(const Option& option) {
  if (option.is_positional()) return option.traits.choices.empty() ? option.name : placeholder_of(option);
  const auto names = option.traits.short_name.empty() ? option.name : option.traits.short_name + "," + option.name;
  return option.is_flag() ? names : names + " " + placeholder_of(option);
}

std::string right_of(const Option& option) {
  const auto& traits = option.traits;
  std::vector<std::string> facts;
  if (!traits.unit.empty()) facts.push_back("in " + traits.unit);
  if (const auto range = range_of(traits); !range.empty()) facts.push_back(range);
  if (traits.separator != '\0') facts.push_back(fmt::format("several are separated by '{}'", traits.separator));
  else if (option.is_list() && !option.is_positional()) facts.push_back("can be given more than once");
  if (!traits.excludes.empty()) facts.push_back("not with " + traits.excludes);
  if (!traits.needs.empty()) facts.push_back("only with " + traits.needs);
  if (!option.default_text.empty()) facts.push_back("default: " + option.default_text);
  return facts.empty() ? option.description : fmt::format("{} ({})", option.description, fmt::join(facts, "; "));
}

std::string usage_of(const Command& command) {
  std::string text = " [options]";
  for (const auto& option : command.options()) {
    if (!option.is_positional()) continue;
    const auto name = option.name + (option.is_list() ? "..." : "");
    text += option.traits.required ? " " + name : " [" + name + "]";
  }
  return text;
}

std::string options_of(const Command& command, bool positional) {
  std::string text;
  for (const auto& option : command.options())
    if (option.is_positional() == positional && !option.traits.hidden) text += entry(left_of(option), right_of(option));
  return text;
}

constexpr auto kHelp = "-h,--help";
constexpr auto kHelpDescription = "print this help and exit";

std::string examples_of(const std::string& program, const Command& command) {
  if (command.examples().empty()) return "";
  std::string text = "\nExamples:\n";
  for (const auto& [words, meaning] : command.examples())
    text += fmt::format("  {} {}\n      {}\n", program, words, wrapped(meaning, kHelpWidth, 6));
  return text;
}

}  // namespace

void Command::add(std::string name, OptionTarget target, std::string description, OptionTraits traits) {
  auto& option = options_.emplace_back(Option{std::move(name), std::move(target), std::move(description), std::move(traits), {}});
  option.default_text = default_of(option);
}

void Command::append_shown_names(std::vector<std::string>& names) const {
  for (const auto& option : options_)
    if (!option.is_positional() && !option.traits.hidden) names.push_back(option.name);
}

void Command::add_example(std::string_view words, std::string_view meaning) { examples_.emplace_back(words, meaning); }

Command& CommandLine::add_command(std::string name, std::string description) {
  return *commands_.emplace_back(std::make_unique<Command>(std::move(name), std::move(description)));
}

CommandLine::Choice CommandLine::parse(int argc, const char* const* argv) const {
  Given given;
  CLI::App app("", program_.name());
  app.fallthrough();
  app.require_subcommand(0, 1);
  set_up(app, program_, given);
  for (const auto& command : commands_) set_up(*app.add_subcommand(command->name()), *command, given);
  Choice choice;
  const auto find_chosen = [&] {
    for (const auto& command : commands_)
      if (app.got_subcommand(command->name())) choice.command = command.get();
  };
  try {
    app.parse(argc, argv);
    find_chosen();
  } catch (const CLI::CallForHelp&) {
    find_chosen();
    choice.help = true;
    return choice;
  } catch (const CLI::ExtrasError&) {
    find_chosen();
    const auto words = app.remaining(/*recurse=*/true);
    const auto word = words.empty() ? std::string() : words.front();
    if (word.starts_with('-')) {
      std::vector<std::string> known;
      program_.append_shown_names(known);
      if (choice.command) choice.command->append_shown_names(known);
      const auto name = word.substr(0, word.find('='));
      throw UsageError(fmt::format("unknown option '{}'{}", name, suggestion(name, known)));
    }
    if (!choice.command) throw unknown_command(word);
    throw UsageError(fmt::format("{0} does not take '{1}'; `{2} {0} --help` says what it takes", choice.command->name(), word,
                                 program_.name()));
  } catch (const CLI::ArgumentMismatch& error) {
    const std::string message = error.what();  // "--out: 1 required missing"
    throw UsageError(message.substr(0, message.find(':')) + " needs a value");
  } catch (const CLI::ParseError& error) {
    throw UsageError(error.what());
  }
  check_given(program_.name(), program_, given);
  if (choice.command) check_given(program_.name(), *choice.command, given);
  return choice;
}

const Command& CommandLine::find_command(const std::string& name) const {
  for (const auto& command : commands_)
    if (command->name() == name) return *command;
  throw unknown_command(name);
}

UsageError CommandLine::unknown_command(const std::string& name) const {
  std::vector<std::string> names;
  for (const auto& command : commands_) names.push_back(command->name());
  return UsageError(fmt::format("unknown command '{}'{}", name, suggestion(name, names)));
}

std::string CommandLine::help(const Command* command) const {
  const auto& name = program_.name();
  std::string text;
  if (command) {
    text = fmt::format("Usage: {} {}{}\n\n{}\n", name, command->name(), usage_of(*command),
                       wrapped(sentence(command->description()), kHelpWidth));
    const auto arguments = options_of(*command, /*positional=*/true);
    if (!arguments.empty()) text += "\nArguments:\n" + arguments;
    text += "\nOptions:\n" + options_of(*command, /*positional=*/false) + entry(kHelp, kHelpDescription);
    return text + examples_of(name, *command);
  }
  text = fmt::format("Usage: {} COMMAND [options]\n\n{}\n\nCommands:\n", name, wrapped(program_.description(), kHelpWidth));
  for (const auto& each : commands_) text += entry(each->name(), each->description());
  text += "\nOptions:\n" + options_of(program_, /*positional=*/false) + entry(kHelp, kHelpDescription);
  return text + examples_of(name, program_);
}

}  // namespace attnbench
