"""One self-contained page of HTML about folders of results: `attnbench report`."""
