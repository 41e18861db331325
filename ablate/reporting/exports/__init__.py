"""Exports of a report besides its pages: figures to print, tables to compute with, and an index of studies."""
