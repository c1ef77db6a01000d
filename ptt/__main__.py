"""Run the command as `python -m ptt`."""

from ptt.cli.app import main

main()
