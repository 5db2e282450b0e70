// `attnbench completion`: writes scripts for bash and zsh from the declared options of all commands.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <memory>

#include "harness/cli/commands.h"
#include "harness/cli/exit_codes.h"

namespace attnbench {
namespace {

// The accepted values of the option, as a shell offers them: of "file:PATH" what precedes the path.
std::string offered_choices(const Option& option) {
  std::vector<std::string> offered;
  for (const auto& choice : option.traits.choices)
    offered.push_back(choice.ends_with(":PATH") ? choice.substr(0, choice.find(':') + 1) : choice);
  return fmt::format("{}", fmt::join(offered, " "));
}

// ---------------------------------------------------------------- bash

// Shell code that completes $word with the choices of the option, or with what its `completion` stands for.
std::string bash_reply(const Option& option) {
  if (!option.traits.choices.empty()) return fmt::format("_attnbench_offer -W '{}'", offered_choices(option));
  switch (option.traits.completion) {
    case Completion::methods:
      return "_attnbench_offer -W \"$(_attnbench_names methods)\" -d; _attnbench_offer -f -X '!*.py'; _attnbench_as_files";
    case Completion::sweeps:
      return "_attnbench_offer -W \"$(_attnbench_names sweeps)\" -d; _attnbench_offer -f -X '!*.toml'; _attnbench_as_files";
    case Completion::trainings:
      return "_attnbench_offer -W \"$(_attnbench_names trainings)\" -d; _attnbench_offer -f -X '!*.toml'; _attnbench_as_files";
    case Completion::commands: return "_attnbench_offer -W \"$commands\"";
    case Completion::files: return "_attnbench_offer -f; _attnbench_as_files";
    case Completion::nothing: break;
  }
  return ":";
}

// Branches of `case "$command $before"` for the values of the command's options.
std::string bash_value_branches(const Command& command, const std::string& name) {
  std::string text;
  for (const auto& option : command.options())
    if (!option.is_positional() && !option.is_flag() && !option.traits.hidden)
      for (const auto& written : {option.name, option.traits.short_name})
        if (!written.empty()) text += fmt::format("    {}\\ {}) {}; return ;;\n", name, written, bash_reply(option));
  return text;
}

// Shell code that completes a positional argument. All positional arguments of a command are completed alike.
std::string bash_argument(const Command& command) {
  for (const auto& option : command.options())
    if (option.is_positional()) return bash_reply(option);
  return ":";
}

std::string bash_script(const CommandLine& line) {
  std::vector<std::string> commands, global = {"--help"};
  line.program().append_shown_names(global);
  std::string values = bash_value_branches(line.program(), "*"), options, arguments;
  for (const auto& command : line.commands()) {
    commands.push_back(command->name());
    auto names = global;
    command->append_shown_names(names);
    values += bash_value_branches(*command, command->name());
    options += fmt::format("      {}) options='{}' ;;\n", command->name(), fmt::join(names, " "));
    arguments += fmt::format("    {}) {} ;;\n", command->name(), bash_argument(*command));
  }
  return fmt::format(R"script(# Completion of {0} for bash. To load it: source <({0} completion bash)
_attnbench_names() {{ "$program" list "$1" --format csv 2>/dev/null | tail -n +2 | cut -d, -f1; }}
_attnbench_as_files() {{ compopt -o filenames 2>/dev/null; }}
# Adds what compgen makes of these options to the completions, one from each line, since names of files may have spaces.
_attnbench_offer() {{
  local line
  while IFS= read -r line; do COMPREPLY+=("$line"); done < <(compgen "$@" -- "$word")
}}
_attnbench() {{
  local program=${{COMP_WORDS[0]}} word=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD-1]}} command= options at
  local commands='{5}'
  COMPREPLY=()
  # bash divides "--option=value" into three words.
  if [[ $word == = ]]; then word=
  elif [[ $before == = ]]; then before=${{COMP_WORDS[COMP_CWORD-2]}}
  fi
  # It also divides "file:PATH", which is a value of --inputs.
  if [[ $before == file && $word == : ]]; then word=; before=:; fi
  if [[ $before == : && " ${{COMP_WORDS[*]}} " == *" file : "* ]]; then _attnbench_offer -f; _attnbench_as_files; return; fi
  for ((at = 1; at < COMP_CWORD; ++at)); do
    case ${{COMP_WORDS[at]}} in
      {1}) command=${{COMP_WORDS[at]}}; break ;;
    esac
  done
  case "$command $before" in
{2}  esac
  if [[ $word == -* ]]; then
    case $command in
      '') options='{3}' ;;
{4}    esac
    _attnbench_offer -W "$options"
    return
  fi
  case $command in
    '') _attnbench_offer -W "$commands" ;;
{6}  esac
}}
complete -F _attnbench {0}
)script",
                     line.program().name(), fmt::join(commands, "|"), values, fmt::join(global, " "), options,
                     fmt::join(commands, " "), arguments);
}

// ---------------------------------------------------------------- zsh

// Escapes text for a single-quoted specification of zsh's _arguments, in which colons separate the parts.
std::string zsh_text(const std::string& text) {
  std::string quoted;
  for (const char c : text) {
    if (c == '\'') quoted += "'\\''";
    else if (c == ':' || c == '[' || c == ']' || c == '\\') quoted += std::string("\\") + c;
    else quoted += c;
  }
  return quoted;
}

std::string zsh_action(const Option& option) {
  if (!option.traits.choices.empty()) return fmt::format("({})", zsh_text(offered_choices(option)));
  switch (option.traits.completion) {
    case Completion::methods: return "_attnbench_names_or_files methods \"*.py\"";
    case Completion::sweeps: return "_attnbench_names_or_files sweeps \"*.toml\"";
    case Completion::trainings: return "_attnbench_names_or_files trainings \"*.toml\"";
    case Completion::commands: return "_attnbench_commands";
    case Completion::files: return "_files";
    case Completion::nothing: break;
  }
  return " ";
}

std::string zsh_specifications(const Command& command) {
  std::string text;
  for (const auto& option : command.options()) {
    if (option.traits.hidden) continue;
    const auto description = zsh_text(option.description), action = zsh_action(option);
    if (option.is_positional()) text += fmt::format(" \\\n        '{}:{}:{}'", option.is_list() ? "*" : "", option.name, action);
    else if (option.is_flag()) text += fmt::format(" \\\n        '{}[{}]'", option.name, description);
    else {
      text += fmt::format(" \\\n        '{}{}=[{}]:{}:{}'", option.is_list() ? "*" : "", option.name, description,
                          option.name.substr(2), action);
      if (const auto& name = option.traits.short_name; !name.empty())
        text += fmt::format(" \\\n        '{}[{}]:{}:{}'", name, description, option.name.substr(2), action);
    }
  }
  return text;
}

std::string zsh_script(const CommandLine& line) {
  std::string commands, branches;
  const auto global = zsh_specifications(line.program()) + " \\\n        '--help[print this help and exit]'";
  for (const auto& command : line.commands()) {
    commands += fmt::format("    '{}:{}'\n", command->name(), zsh_text(command->description()));
    branches += fmt::format("    {})\n      _arguments{}{}\n      ;;\n", command->name(), zsh_specifications(*command), global);
  }
  return fmt::format(R"script(#compdef {0}
# Completion of {0} for zsh. To load it: source <({0} completion zsh)
_attnbench_names() {{
  local -a names
  names=(${{(f)"$($attnbench_program list $1 --format csv 2>/dev/null | tail -n +2 | cut -d, -f1)"}})
  compadd -a names
}}
_attnbench_names_or_files() {{
  _attnbench_names $1
  _files -g "$2"
}}
_attnbench_commands() {{
  local -a commands
  commands=(
{1}  )
  _describe command commands
}}
_attnbench() {{
  local attnbench_program=$words[1] curcontext=$curcontext state line
  _arguments -C{2} \
        '1: :->command' '*:: :->arguments'
  case $state in
    command)
      _attnbench_commands
      return
      ;;
  esac
  case $words[1] in
{3}  esac
}}
if [[ $funcstack[1] == _attnbench ]]; then _attnbench "$@"; else compdef _attnbench {0}; fi
)script",
                     line.program().name(), commands, global, branches);
}

}  // namespace

Run add_completion_command(Command& command, const CommandLine& line) {
  const auto shell = std::make_shared<std::string>();
  command.add("shell", shell.get(), "shell that the script is for", {.choices = {"bash", "zsh"}, .required = true});
  command.add_example("completion bash > ~/.local/share/bash-completion/completions/attnbench",
                      "installs the completion for bash");
  command.add_example("completion zsh > ~/.zfunc/_attnbench", "installs the completion for zsh, if ~/.zfunc is in fpath");
  return [shell, &line](const WorkerProgram&) {
    fmt::print("{}", *shell == "bash" ? bash_script(line) : zsh_script(line));
    return exit_code::success;
  };
}

}  // namespace attnbench
