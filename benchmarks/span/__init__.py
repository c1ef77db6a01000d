"""Made runs that span what real dumps span, each drawn at random, with what is true of it."""
