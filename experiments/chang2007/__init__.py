"""Chang, Ratinov & Roth 2007: constraint-driven learning on citations and advertisements."""
