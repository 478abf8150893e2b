"""Bases and healthy sets of the judged part: sources that no rule was written on."""
