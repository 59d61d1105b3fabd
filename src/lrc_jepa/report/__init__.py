"""Reports: rows in, tables, figures and one page out. Nothing here knows a tensor."""
