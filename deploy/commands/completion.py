"""`deploy completion`: what a shell needs to complete profiles, hosts, runs, keys and values."""

from __future__ import annotations

import click


@click.command
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the script for SHELL. It asks this command what may stand next; no host is asked.

    \b
    Examples:
      deploy completion bash > ~/.local/share/bash-completion/completions/deploy
      echo 'eval "$(deploy completion bash)"' >> ~/.bashrc      where bash-completion is not installed
      echo 'eval "$(deploy completion zsh)"' >> ~/.zshrc        after compinit
      deploy completion fish > ~/.config/fish/completions/deploy.fish
    """
    from deploy.completion import shells

    click.echo(shells.script(shell, click.get_current_context().find_root().command), nl=False)
