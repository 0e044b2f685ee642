# Relative error of the averaged gradient against the number of ranks, one line for each reduction.
# The data: blocks of ranks, error; the last block: ranks, noise of the mini-batch.
colour(i) = word(blue.' '.vermillion.' '.green.' '.purple.' '.orange.' '.sky.' '.black, (i - 1) % 7 + 1)
name_of(i) = value(sprintf('line_%d', i))
set key at screen px(width - 24), screen py(84) right top Left reverse noenhanced font small_font \
    textcolor rgb ink samplen 3 spacing 1.25
set lmargin at screen px(84)
set rmargin at screen px(width - 280)
set tmargin at screen py(84)
set bmargin at screen py(height - 64)
set label 1 'Error of the reduced gradient' at screen px(24), screen py(22) noenhanced font title_font \
    textcolor rgb ink
set label 2 detail at screen px(24), screen py(46) noenhanced font small_font textcolor rgb soft
set label 3 'ranks' at graph 0.5, screen py(height - 18) center noenhanced font small_font textcolor rgb soft
set label 4 '|result - mean| / |mean|' at screen px(24), screen py(68) noenhanced font small_font \
    textcolor rgb soft
set logscale x 2
set logscale y 10
set format x '%.0f'
set format y '10^{%L}'
plot data index lines using 1:2 with lines linecolor rgb soft dashtype 2 linewidth 2 \
         title 'noise of the mini-batch', \
     for [i = 1:lines] data index i - 1 using 1:2 with linespoints linecolor rgb colour(i) linewidth 2 \
         pointtype (i - 1) / 7 + 7 pointsize 0.7 title name_of(i)
