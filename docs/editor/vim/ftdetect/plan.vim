autocmd BufNewFile,BufRead *.plan setfiletype plan
