"""The paper's figures and the demonstration, as data."""
