"""Run the command as `python -m ptt`."""

from ptt.cli.app import main

if __name__ == "__main__":  # the drawing process imports this module under another name
    main()
